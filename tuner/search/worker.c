/* worker.c: a worker process and its supervisor.
 * in -> out: fork -> worker; its death or its silence -> the candidate at fault. */
#include "tuner/search/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "tuner/search/trial_fill.h"

void *ft_worker_memory(size_t bytes) {
  void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return memory;
  ft_fail(FT_E_MEMORY, "no memory to share with a worker: %s", strerror(errno));
  return NULL;
}

void ft_worker_forget(void *memory, size_t bytes) {
  if (memory) munmap(memory, bytes);
}

void ft_worker_watch(struct ft_worker_seat *seat, const struct ft_trial *trial) {
  atomic_store(&seat->taken, false);
  if (trial) seat->trial = *trial;
  if (trial) atomic_store(&seat->taken, true);
  atomic_fetch_add(&seat->beats, 1);
}

/* ---- signals ---- */

/* The worker that runs now. These are globals because a signal handler takes no argument. */
static volatile sig_atomic_t worker_process;
static volatile sig_atomic_t signals_handed;
static struct timespec first_signal;

/* The same Ctrl-C may arrive twice, from the terminal and from `timeout`: a second signal counts
 * only after 0.3 s. */
static void hand_on(int number) {
  const int saved = errno;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double since = (double)(now.tv_sec - first_signal.tv_sec) +
                       1e-9 * (double)(now.tv_nsec - first_signal.tv_nsec);
  if (!signals_handed) {
    signals_handed = number;
    first_signal = now;
    if (worker_process > 0) kill((pid_t)worker_process, number);
  } else if (since > 0.3 && worker_process > 0) {
    kill((pid_t)worker_process, SIGKILL);
  }
  errno = saved;
}

static const int handed[] = {SIGINT, SIGTERM};
enum { HANDED = sizeof handed / sizeof *handed };

/* A signal that the caller ignores stays ignored. */
static void catch_signals(struct sigaction before[HANDED]) {
  struct sigaction action = {.sa_handler = hand_on, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < HANDED; i++)
    if (sigaction(handed[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN)
      sigaction(handed[i], &action, NULL);
}

static void release_signals(const struct sigaction before[HANDED]) {
  for (int i = 0; i < HANDED; i++) sigaction(handed[i], &before[i], NULL);
}

/* ---- one worker ---- */

struct worker {
  pid_t process;
  int alive;   /* the reading end of a pipe that the worker holds as long as it lives */
  bool silent; /* was killed for that */
};

static void become_worker(pid_t supervisor, const sigset_t *mask,
                          const struct sigaction before[HANDED]) {
  setpgid(0, 0); /* the supervisor hands signals on */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) _exit(1);
  release_signals(before);
  sigprocmask(SIG_SETMASK, mask, NULL);
}

/* Waits until the worker has ended, which closes the pipe, and kills it if it is silent for too
 * long.
 */
static int wait_for(struct worker *worker, const struct ft_supervision *how) {
  unsigned beats = atomic_load(&how->seat->beats);
  double since = ft_seconds_now();
  struct pollfd end = {.fd = worker->alive, .events = POLLIN};
  int status = 0;
  for (;;) {
    if (poll(&end, 1, 100) == 1) break;
    if (atomic_load(&how->seat->beats) != beats || !atomic_load(&how->seat->taken)) {
      beats = atomic_load(&how->seat->beats);
      since = ft_seconds_now();
    }
    if (waitpid(worker->process, &status, WNOHANG) == worker->process) return status;
    if (ft_seconds_now() - since < how->silence_seconds) continue;
    worker->silent = true;
    kill(worker->process, SIGKILL);
    break;
  }
  /* A worker that has lost the GPU may hang in the driver while it exits. */
  for (int i = 0; i < 100; i++) {
    if (waitpid(worker->process, &status, WNOHANG) == worker->process) return status;
    poll(NULL, 0, i < 20 ? 1 : 100);
  }
  kill(worker->process, SIGKILL);
  while (waitpid(worker->process, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

/* Whether the worker has done its work; *code is its exit code. If not, `why` says what happened.
 */
static bool ended(const struct worker *worker, int status, double silence, int *code, char *why,
                  size_t room) {
  if (worker->silent) {
    (void)snprintf(why, room, "no answer for %g s: the worker was killed", silence);
    return false;
  }
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    (void)snprintf(why, room, "the worker was ended by signal %d (%s)", number, strsignal(number));
    *code = 128 + number;
    return signals_handed != 0;
  }
  *code = WEXITSTATUS(status);
  (void)snprintf(why, room, "the GPU no longer answered the worker");
  return *code != FT_WORKER_LOST;
}

static bool tell_lost(const struct ft_supervision *how, const struct worker *worker,
                      const char *why) {
  if (!atomic_load(&how->seat->taken)) return how->lost(how->payload, NULL, why);
  struct ft_trial trial = how->seat->trial;
  ft_trial_end(&trial, worker->silent ? FT_OUTCOME_TIMEOUT : FT_OUTCOME_LAUNCH, why);
  atomic_store(&how->seat->taken, false);
  return how->lost(how->payload, &trial, why);
}

/* ---- all workers ---- */

/* 0: this is the worker. 1: it has been begun. -1: it could not be. */
static int begin_worker(struct worker *worker, const struct sigaction before[HANDED]) {
  int ends[2];
  sigset_t all, mask;
  const pid_t supervisor = getpid();
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &mask);
  const pid_t process = fork();
  if (process == 0) {
    close(ends[0]); /* the other end stays open */
    become_worker(supervisor, &mask, before);
    return 0;
  }
  close(ends[1]);
  *worker = (struct worker){.process = process, .alive = ends[0]};
  worker_process = process;
  if (process > 0 && signals_handed) kill(process, signals_handed); /* it came before the worker */
  sigprocmask(SIG_SETMASK, &mask, NULL);
  if (process > 0) return 1;
  close(ends[0]);
  return -1;
}

bool ft_supervise(const struct ft_supervision *how, int *code) {
  struct sigaction before[HANDED];
  struct worker worker;
  char why[160];
  bool again = true;
  signals_handed = 0;
  worker_process = 0;
  catch_signals(before);
  for (int count = 0; again; count++) {
    const int begun = begin_worker(&worker, before);
    if (begun < 0) release_signals(before);
    if (begun <= 0) return false;
    const int status = wait_for(&worker, how);
    close(worker.alive);
    if (ended(&worker, status, how->silence_seconds, code, why, sizeof why)) break;
    again = tell_lost(how, &worker, why) && !signals_handed;
    if (!again) *code = FT_WORKER_LOST;
  }
  release_signals(before);
  return true;
}
