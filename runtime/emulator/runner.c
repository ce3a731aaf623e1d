/* runner.c: code that is not ours, run in a child process.
 * in -> out: a job -> a fork with limits, watched until it ends -> done, or how it ended.
 *
 * A page that both share holds what they tell each other; a pair of sockets wakes them. The host
 * takes nothing on trust that the child writes there: words are cut to their room, numbers are
 * checked. */
#include "runtime/emulator/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator/clock.h"
#include "runtime/emulator/filter.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/pages.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1 /* whose shadow is larger than any limit, and which tells of crashes */
#else
#define UNDER_SANITIZER 0
#endif

#ifdef FATUNE_COVERAGE
#define MAY_WRITE_FILES 1 /* gcov's counters */
#else
#define MAY_WRITE_FILES 0
#endif

/* In the child: 0 nothing to read, 1 and 2 what it says, and these. */
enum { SOCKET = 3, OBJECT = 4, FIRST_OTHER = 5 };
enum { SAID_MOST = 1 << 20, TOLD_MOST = 1500, LOOK_MS = 200, SOON_MS = 2, SECONDS_MOST = 1000000 };
enum { BEGIN_SECONDS = 10, ATTEMPTS = 3 };
static const rlim_t MEMORY_MOST = (rlim_t)8 << 30; /* beyond what the host has */

struct page {
  _Atomic uint64_t progress;
  atomic_bool done;
  int signal; /* that ended the job, as its handler saw it; 0: none */
  int system_call;
  int exited; /* the job called exit */
  char where[256];
  int question_count, answer_count;
  uint64_t question[FT_QUESTION_MOST];
  int answer[FT_ANSWER_MOST];
};

/* ---- in the child ---- */

static struct page *here; /* NULL in the host */
static const struct ft_runner_job *job_here;

void ft_runner_progress(void) {
  if (here) here->progress += 1;
}

/* false: the other side is there no more. */
static bool read_byte(int from) {
  char byte;
  ssize_t got;
  do {
    got = read(from, &byte, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

int ft_runner_ask(const uint64_t *question, int count, int answer[FT_ANSWER_MOST]) {
  if (!here || count > FT_QUESTION_MOST) return 0;
  memcpy(here->question, question, (size_t)count * sizeof *question);
  here->question_count = count;
  if (write(SOCKET, "x", 1) != 1 || !read_byte(SOCKET)) return 0;
  memcpy(answer, here->answer, sizeof here->answer);
  return here->answer_count;
}

/* The last words of a job. What it has left behind may crash them, too: then the signal that ends
 * the process says it. */
static void crashed(int number, siginfo_t *info, void *context) {
  (void)context;
  here->signal = number;
  if (number == SIGSYS) here->system_call = info->si_syscall;
  if (job_here->where) job_here->where(job_here->payload, here->where, sizeof here->where);
  _exit(1);
}

/* Before the host's own handlers of the end, which are none of the child's business. */
static void exited(void) {
  here->exited = 1;
  _exit(1);
}

/* All other signals stay blocked: the child ends when it is done or when it is killed. */
static void set_signals(void) {
  static char stack[65536];
  const int ours[] = {SIGSYS, SIGXCPU, SIGXFSZ, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
  const int count = UNDER_SANITIZER ? 3 : (int)(sizeof ours / sizeof *ours);
  struct sigaction action = {.sa_sigaction = crashed,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND};
  const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  sigset_t wanted;
  sigemptyset(&wanted);
  if (!UNDER_SANITIZER) sigaltstack(&alternate, NULL);
  for (int n = 0; n < (int)(sizeof ours / sizeof *ours); n++) sigaddset(&wanted, ours[n]);
  for (int n = 0; n < count; n++) sigaction(ours[n], &action, NULL);
  sigprocmask(SIG_UNBLOCK, &wanted, NULL);
}

/* Bytes of private memory that can be written to, as RLIMIT_DATA counts them: the sixth number of
 * statm, in pages. */
static rlim_t data_bytes(void) {
  char text[256] = "", *rest = text;
  unsigned long pages = 0;
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file >= 0 && read(file, text, sizeof text - 1) > 0)
    for (int n = 0; n < 6; n++) pages = strtoul(rest, &rest, 10);
  if (file >= 0) close(file);
  return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void set_limit(int which, rlim_t most) {
  struct rlimit limit;
  if (getrlimit(which, &limit) != 0) return;
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > most) limit.rlim_max = most;
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > limit.rlim_max)
    limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(which, &limit);
}

static void set_limits(void) {
  set_limit(RLIMIT_CORE, 0);
  if (!UNDER_SANITIZER) set_limit(RLIMIT_DATA, data_bytes() + MEMORY_MOST);
  if (MAY_WRITE_FILES) return;
  set_limit(RLIMIT_FSIZE, SAID_MOST);
  (void)ft_filter_system_calls(); /* where there is none, the other limits have to do */
}

/* Out of the way first: any of them may have one of the numbers already. */
static bool set_files(int said, int socket, int object) {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int wanted[FIRST_OTHER] = {nothing, said, said, socket, object};
  int high[FIRST_OTHER];
  for (int n = 0; n < FIRST_OTHER; n++) high[n] = fcntl(wanted[n], F_DUPFD_CLOEXEC, FIRST_OTHER);
  for (int n = 0; n < FIRST_OTHER; n++)
    if (wanted[n] >= 0 && dup2(high[n], n) < 0) return false;
  (void)close_range(FIRST_OTHER, ~0U, 0);
  return true;
}

static _Noreturn void run_job(const struct ft_runner_job *job, struct page *page, pid_t host,
                              int said, int socket) {
  here = page;
  job_here = job;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != host) _exit(1);
  if (atexit(exited) != 0 || !set_files(said, socket, job->file)) _exit(1);
  set_signals();
  set_limits();
  job->run(job->payload);
#ifdef FATUNE_COVERAGE
  extern void __gcov_dump(void);
  __gcov_dump();
#endif
  page->done = true;
  _exit(0);
}

/* ---- in the host ---- */

struct child {
  const struct ft_runner_job *job;
  struct page *page;
  pid_t process;
  int socket, said; /* what the child writes to 1 and 2 */
  double seconds;   /* it may take from one progress to the next */
};

/* $FATUNE_EMULATOR_SECONDS, else what no cluster of blocks of ours comes near. */
static int read_seconds(double *seconds, char *message, size_t size) {
  const char *const text = secure_getenv("FATUNE_EMULATOR_SECONDS");
  *seconds = 600;
  if (!text || !*text) return 0;
  char *end;
  const long value = strtol(text, &end, 10);
  if (*end == '\0' && value > 0 && value <= SECONDS_MOST) {
    *seconds = (double)value;
    return 0;
  }
  (void)snprintf(message, size, "FATUNE_EMULATOR_SECONDS is \"%s\"; allowed: 1 .. %d", text,
                 SECONDS_MOST);
  return -1;
}

/* The locks that the job takes must be free in the child; those of malloc are the C library's
 * care. Signals wait: the child must not run the host's handlers. */
static pid_t fork_child(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  ft_memory_lock();
  const pid_t process = fork();
  ft_memory_unlock();
  if (process != 0) pthread_sigmask(SIG_SETMASK, &before, NULL);
  return process;
}

static int start(struct child *child, char *message, size_t size) {
  int ends[2];
  child->page = ft_pages_allocate(sizeof *child->page);
  child->said = memfd_create("fatune-said", MFD_CLOEXEC);
  if (!child->page || child->said < 0 ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    (void)snprintf(message, size, "%s cannot be run in a process of its own: %s", child->job->name,
                   strerror(errno));
    return -1;
  }
  const pid_t host = getpid();
  child->process = fork_child();
  if (child->process == 0) run_job(child->job, child->page, host, child->said, ends[1]);
  const int error = errno;
  close(ends[1]);
  child->socket = ends[0];
  if (child->process > 0) return 0;
  (void)snprintf(message, size, "%s cannot be run in a process of its own: %s", child->job->name,
                 strerror(error));
  return -1;
}

static void answer(const struct child *child) {
  struct page *const page = child->page;
  uint64_t question[FT_QUESTION_MOST];
  const int count = page->question_count;
  page->answer_count = 0;
  if (child->job->answer && count > 0 && count <= FT_QUESTION_MOST) {
    memcpy(question, page->question, sizeof question);
    page->answer_count = child->job->answer(child->job->payload, question, count, page->answer);
  }
  (void)send(child->socket, "x", 1, MSG_NOSIGNAL);
}

enum end { ENDED, TOO_LATE, NOT_BEGUN };

static bool is_running(const struct child *child) {
  siginfo_t state = {0};
  return waitid(P_PID, (id_t)child->process, &state, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         state.si_pid == 0;
}

/* Until the child has ended or is done, or has been without progress for too long. The job may
 * close its end of the socket, and another process of the host's may have it open. */
static enum end watch(const struct child *child) {
  struct pollfd socket = {.fd = child->socket, .events = POLLIN};
  uint64_t progress = child->page->progress;
  const double begin = ft_seconds_now();
  double deadline = begin + child->seconds;
  for (;;) {
    if (poll(&socket, 1, socket.fd < 0 ? SOON_MS : LOOK_MS) > 0) {
      if (read_byte(child->socket))
        answer(child);
      else
        socket.fd = -1;
    }
    if (child->page->done || !is_running(child)) return ENDED;
    if (progress == 0 && ft_seconds_now() > begin + BEGIN_SECONDS) return NOT_BEGUN;
    if (child->page->progress != progress) {
      progress = child->page->progress;
      deadline = ft_seconds_now() + child->seconds;
    }
    if (ft_seconds_now() > deadline) return TOO_LATE;
  }
}

/* What waitpid gives; -1: somebody else of this process has waited for it. */
static int reap(const struct child *child) {
  int status = 0;
  pid_t reaped;
  if (is_running(child)) (void)kill(child->process, SIGKILL);
  do {
    reaped = waitpid(child->process, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  return reaped == child->process ? status : -1;
}

/* The begin of what the job wrote, from a sanitizer's report on. */
static void add_said(const struct child *child, char *message, size_t size) {
  char said[16384];
  const ssize_t got = pread(child->said, said, sizeof said - 1, 0);
  const size_t length = strnlen(message, size);
  if (got <= 0 || length + 4 >= size) return;
  said[got] = '\0';
  const char *report = strstr(said, "ERROR: ");
  if (!report) report = said;
  (void)snprintf(message + length, size - length, ": %.*s", TOLD_MOST, report);
}

static void tell_signal(const struct child *child, int number, char *message, size_t size) {
  switch (number) {
  case SIGSYS:
    (void)snprintf(message, size,
                   "makes system call %d, which emulated code may not make (signal %d)",
                   child->page->system_call, number);
    break;
  case SIGXFSZ:
    (void)snprintf(message, size, "writes more than %d bytes (signal %d)", SAID_MOST, number);
    break;
  default: (void)snprintf(message, size, "was ended by signal %d (%s)", number, strsignal(number));
  }
}

static void tell_end(const struct child *child, int status, char *message, size_t size) {
  const struct page *const page = child->page;
  const bool killed = status > 0 && WIFSIGNALED(status);
  const int number = page->signal ? page->signal : killed ? WTERMSIG(status) : 0;
  char what[128];
  if (number > 0)
    tell_signal(child, number, what, sizeof what);
  else if (page->exited)
    (void)snprintf(what, sizeof what, "calls exit");
  else
    (void)snprintf(what, sizeof what, "ended with exit status %d before it was done",
                   status > 0 ? WEXITSTATUS(status) : 0);
  if (page->where[0])
    (void)snprintf(message, size, "%.*s: %s", (int)sizeof page->where, page->where, what);
  else
    (void)snprintf(message, size, "%s %s", child->job->name, what);
  add_said(child, message, size);
}

static int finish(const struct child *child, enum end end, char *message, size_t size) {
  const int status = reap(child);
  if (child->page->done) return 0;
  if (end == ENDED)
    tell_end(child, status, message, size);
  else if (end == TOO_LATE)
    (void)snprintf(message, size,
                   "%s was ended: a cluster of blocks has taken %.0f s (FATUNE_EMULATOR_SECONDS)",
                   child->job->name, child->seconds);
  else
    (void)snprintf(message, size, "%s was ended: its loading has taken %d s, %d times",
                   child->job->name, BEGIN_SECONDS, ATTEMPTS);
  return -1;
}

/* *end NOT_BEGUN: maybe another thread of the host was loading a library at the moment of the fork,
 * so that the child waits for it for ever. */
static int attempt(const struct ft_runner_job *job, double seconds, enum end *end, char *message,
                   size_t size) {
  struct child child = {.job = job, .socket = -1, .said = -1, .seconds = seconds};
  int result = start(&child, message, size);
  *end = ENDED;
  if (result == 0) {
    *end = watch(&child);
    result = finish(&child, *end, message, size);
  }
  if (child.socket >= 0) close(child.socket);
  if (child.said >= 0) close(child.said);
  ft_pages_release(child.page, sizeof *child.page);
  return result;
}

int ft_runner_run(const struct ft_runner_job *job, char *message, size_t size) {
  double seconds;
  enum end end = NOT_BEGUN;
  int result = read_seconds(&seconds, message, size);
  if (result != 0) return result;
  for (int n = 0; n < ATTEMPTS && end == NOT_BEGUN; n++)
    result = attempt(job, seconds, &end, message, size);
  return result;
}
