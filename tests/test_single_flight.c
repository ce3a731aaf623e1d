/* test_single_flight.c: a missing kernel is compiled once, whatever number of threads and processes
 * ask for it; nobody waits for long for an owner or a writer that does not move.
 * in -> out: threads and forked processes on the fake NVRTC -> Check suite. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator/clock.h"
#include "runtime/choice.h"
#include "runtime/kernel_source.h"
#include "runtime/session.h"
#include "tests/fake/use_fake.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

static int slow_or(int short_form, int long_form) {
  return tests_are_slow() ? long_form : short_form;
}

static struct fixture fixture;
static struct fake_controls nvrtc;
static char compiles[128]; /* a byte a compile */

static void set_up(void) {
  fixture_open(&fixture);
  use_fake_cuda();
  nvrtc = use_fake_nvrtc();
  snprintf(compiles, sizeof compiles, "%s/compiles", fixture.root);
  setenv("FATUNE_FAKE_COMPILES", compiles, 1);
  unsetenv("FATUNE_FAKE_COMPILE_MS");
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static int compile_count(void) {
  struct stat state;
  return stat(compiles, &state) == 0 ? (int)state.st_size : 0;
}

static void compiles_take(int milliseconds) {
  char text[16];
  snprintf(text, sizeof text, "%d", milliseconds);
  setenv("FATUNE_FAKE_COMPILE_MS", text, 1);
}

static void note(void *payload, const char *message) {
  struct fixture *const noted = payload;
  snprintf(noted->warnings[noted->warning_count++ % FIXTURE_WARNINGS], 512, "%s", message);
}

static fatune_session *open_session(void) {
  fatune_session *session;
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.cache_dir = fixture.folder;
  options.log = note;
  options.payload = &fixture;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

static void emit(fatune_session *session, const char *words, struct ft_source *source) {
  struct ft_request request;
  struct ft_choice choice;
  const struct ft_arch *const arch = &session->device.arch;
  ck_assert_status(ft_request_parse(&request, words), FT_OK);
  ck_assert_status(ft_session_choose(session, &request, arch, session->device.id, &choice), FT_OK);
  ck_assert_status(ft_session_emit(session, &request, arch, &choice.config, source), FT_OK);
}

#define MISSING "forward bf16 d64 nq128"
#define STORED  "forward bf16 d128 nq128"

static int get_emitted(fatune_session *session, struct ft_source *source, bool *compiled) {
  struct ft_kernel kernel;
  const int status = ft_session_kernel(session, source, NULL, &kernel, compiled);
  if (status == FT_OK) {
    const struct ft_digest digest = ft_digest_of(kernel.image, kernel.image_size);
    ck_assert(ft_digest_equal(&digest, &kernel.image_digest));
    ft_kernel_free(&kernel);
  }
  ft_source_free(source);
  return status;
}

static int get_kernel(fatune_session *session, const char *words, bool *compiled) {
  struct ft_source source;
  emit(session, words, &source);
  return get_emitted(session, &source, compiled);
}

/* ---- threads ---- */

struct asker {
  pthread_t thread;
  fatune_session *session;
  pthread_barrier_t *start;
  int status;
  char detail[200];
};

static void *ask(void *payload) {
  struct asker *const asker = payload;
  struct ft_source source;
  bool compiled;
  emit(asker->session, MISSING, &source); /* first, as it takes a while */
  pthread_barrier_wait(asker->start);
  asker->status = get_emitted(asker->session, &source, &compiled);
  snprintf(asker->detail, sizeof asker->detail, "%s", ft_detail());
  return NULL;
}

enum { ASKERS_MOST = 32 };

static void ask_all(fatune_session *session, struct asker askers[ASKERS_MOST], int count) {
  pthread_barrier_t start;
  pthread_barrier_init(&start, NULL, (unsigned)count);
  for (int i = 0; i < count; i++) {
    askers[i] = (struct asker){.session = session, .start = &start};
    ck_assert_int_eq(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
  }
  for (int i = 0; i < count; i++) pthread_join(askers[i].thread, NULL);
  pthread_barrier_destroy(&start);
}

START_TEST(threads_compile_a_missing_kernel_once) {
  struct asker askers[ASKERS_MOST];
  const int count = slow_or(16, ASKERS_MOST);
  fatune_session *const session = open_session();
  compiles_take(200);
  ask_all(session, askers, count);
  for (int i = 0; i < count; i++)
    ck_assert_msg(askers[i].status == FT_OK, "thread %d: %s", i, askers[i].detail);
  ck_assert_int_eq(compile_count(), 1);
  fatune_session_close(session);
  ck_assert_int_eq(nvrtc.live(), 0);
}
END_TEST

START_TEST(threads_share_a_failure) {
  struct asker askers[ASKERS_MOST];
  fatune_session *const session = open_session();
  nvrtc.reset("nvrtcCompileProgram:1:6");
  compiles_take(500);
  ask_all(session, askers, 8);
  for (int i = 0; i < 8; i++) {
    ck_assert_int_eq(askers[i].status, FT_E_COMPILE);
    ck_assert_msg(strstr(askers[i].detail, "NVRTC_ERROR_COMPILATION") != NULL, "%s",
                  askers[i].detail);
  }
  ck_assert_int_eq(compile_count(), 1);
  compiles_take(0);
  bool compiled;
  ck_assert_status(get_kernel(session, MISSING, &compiled), FT_OK); /* who asks later tries again */
  ck_assert(compiled);
  ck_assert_int_eq(compile_count(), 2);
  fatune_session_close(session);
}
END_TEST

/* ---- processes ---- */

/* Exit status: 0 taken from the cache, 1 compiled, 2 failed. */
static void run_and_exit(const char *words) {
  fatune_session *const session = open_session();
  bool compiled = false;
  const int status = get_kernel(session, words, &compiled);
  if (status != FT_OK) fprintf(stderr, "%s\n", ft_detail());
  fatune_session_close(session);
  _exit(status != FT_OK ? 2 : compiled ? 1 : 0);
}

static pid_t fork_one(const char *words) {
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) run_and_exit(words);
  return child;
}

static int exit_of(pid_t child) {
  int status = 0;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status), "status %d", status);
  return WEXITSTATUS(status);
}

START_TEST(processes_compile_a_missing_kernel_once) {
  enum { MOST = 256 };
  pid_t children[MOST];
  const int count = slow_or(32, MOST);
  int compiled = 0;
  compiles_take(slow_or(300, 1500));
  for (int i = 0; i < count; i++) children[i] = fork_one(MISSING);
  for (int i = 0; i < count; i++) {
    const int status = exit_of(children[i]);
    ck_assert_int_le(status, 1);
    compiled += status;
  }
  ck_assert_int_eq(compile_count(), 1);
  ck_assert_int_eq(compiled, 1);
}
END_TEST

static void wait_for_compiles(int count) {
  const double deadline = ft_seconds_now() + 20;
  while (compile_count() < count) {
    ck_assert_msg(ft_seconds_now() < deadline, "%d compiles", compile_count());
    usleep(2000);
  }
}

START_TEST(a_killed_owner_is_followed_at_once) {
  for (int round = 0; round < slow_or(2, 20); round++) {
    snprintf(fixture.folder, sizeof fixture.folder, "%s/round%d", fixture.root, round);
    compiles_take(60000);
    const pid_t owner = fork_one(MISSING);
    wait_for_compiles(2 * round + 1);
    compiles_take(0);
    const pid_t next = fork_one(MISSING);
    usleep(100000);
    ck_assert_int_eq(compile_count(), 2 * round + 1); /* it waits for the owner */
    const double begin = ft_seconds_now();
    ck_assert_int_eq(kill(owner, SIGKILL), 0);
    ck_assert_int_eq(waitpid(owner, NULL, 0), owner);
    ck_assert_int_eq(exit_of(next), 1);
    ck_assert_double_lt(ft_seconds_now() - begin, 2);
    ck_assert_int_eq(compile_count(), 2 * round + 2);
  }
}
END_TEST

/* A process that is stopped holds its claim. */
START_TEST(a_stuck_owner_is_passed) {
  compiles_take(60000);
  const pid_t owner = fork_one(MISSING);
  wait_for_compiles(1);
  compiles_take(0);
  ck_assert_int_eq(kill(owner, SIGSTOP), 0);
  fatune_session *const session = open_session();
  session->flights.patience = 0.3;
  bool compiled;
  const double begin = ft_seconds_now();
  ck_assert_status(get_kernel(session, STORED, &compiled), FT_OK); /* another kernel is no wait */
  ck_assert_double_lt(ft_seconds_now() - begin, 0.25);
  ck_assert_status(get_kernel(session, MISSING, &compiled), FT_OK);
  ck_assert(compiled);
  ck_assert_double_ge(ft_seconds_now() - begin, 0.3);
  ck_assert_status(get_kernel(session, MISSING, &compiled), FT_OK);
  ck_assert(!compiled);
  ck_assert_double_lt(ft_seconds_now() - begin, 10);
  fatune_session_close(session);
  ck_assert_int_eq(kill(owner, SIGKILL), 0);
  ck_assert_int_eq(waitpid(owner, NULL, 0), owner);
}
END_TEST

/* A thread whose compile does not end is passed like a process. */
START_TEST(a_stuck_thread_is_passed) {
  fatune_session *const session = open_session();
  struct asker slow = {.session = session};
  pthread_barrier_t start;
  session->flights.patience = 0.3;
  compiles_take(2000);
  pthread_barrier_init(&start, NULL, 1);
  slow.start = &start;
  ck_assert_int_eq(pthread_create(&slow.thread, NULL, ask, &slow), 0);
  wait_for_compiles(1);
  compiles_take(0);
  const double begin = ft_seconds_now();
  bool compiled;
  ck_assert_status(get_kernel(session, MISSING, &compiled), FT_OK);
  ck_assert_double_lt(ft_seconds_now() - begin, 1.5);
  pthread_join(slow.thread, NULL);
  ck_assert_int_eq(slow.status, FT_OK);
  fatune_session_close(session);
}
END_TEST

/* A place without a file for claims costs compiles, nothing else. */
START_TEST(without_claims_it_goes_on) {
  char path[160];
  bool compiled;
  fatune_session *session = open_session();
  ck_assert_status(get_kernel(session, STORED, &compiled), FT_OK);
  snprintf(path, sizeof path, "%s/kernels.claims", fixture.folder);
  ck_assert_int_eq(unlink(path), 0);
  ck_assert_int_eq(symlink("/dev/null", path), 0);
  ck_assert_status(get_kernel(session, MISSING, &compiled), FT_OK);
  ck_assert(compiled);
  fatune_session_close(session);
  ck_assert_int_eq(fixture.warning_count, 0);
}
END_TEST

/* ---- a writer that does not move ---- */

static pid_t hold_the_write_lock(const char *path) {
  int pipes[2];
  char byte;
  ck_assert_int_eq(pipe(pipes), 0);
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    sqlite3 *handle = NULL;
    sqlite3_open(path, &handle);
    if (sqlite3_exec(handle, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
        write(pipes[1], "x", 1) == 1)
      pause();
    _exit(1);
  }
  close(pipes[1]);
  ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
  close(pipes[0]);
  return child;
}

struct reader {
  fatune_session *session;
  double worst;
  atomic_bool stop;
  int reads;
};

static void *read_on(void *payload) {
  struct reader *const reader = payload;
  struct ft_source source;
  emit(reader->session, STORED, &source);
  while (!reader->stop) {
    struct ft_kernel kernel;
    bool compiled;
    const double begin = ft_seconds_now();
    ck_assert_status(ft_session_kernel(reader->session, &source, NULL, &kernel, &compiled), FT_OK);
    if (ft_seconds_now() - begin > reader->worst) reader->worst = ft_seconds_now() - begin;
    ft_kernel_free(&kernel);
    reader->reads++;
    usleep(1000);
  }
  ft_source_free(&source);
  return NULL;
}

START_TEST(a_stuck_writer_holds_nobody_up) {
  bool compiled;
  fatune_session *const session = open_session();
  ck_assert_status(get_kernel(session, STORED, &compiled), FT_OK);
  const pid_t writer = hold_the_write_lock(ft_store_kernels_path(session->store));
  struct reader reader = {.session = session};
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, read_on, &reader), 0);

  double begin = ft_seconds_now();
  ck_assert_status(get_kernel(session, MISSING, &compiled), FT_OK);
  ck_assert(compiled);
  ck_assert_double_lt(ft_seconds_now() - begin, 8);
  begin = ft_seconds_now();
  ck_assert_status(get_kernel(session, "forward bf16 d96 nq128", &compiled), FT_OK);
  ck_assert_double_lt(ft_seconds_now() - begin, 1); /* the writer is known to be stuck */
  ck_assert_status(get_kernel(session, MISSING, &compiled), FT_OK);
  ck_assert(!compiled); /* kept in memory */
  reader.stop = true;
  pthread_join(thread, NULL);
  ck_assert_int_gt(reader.reads, 20);
  ck_assert_msg(reader.worst < 1, "a hit took %.1f s", reader.worst);
  int told = 0;
  for (int i = 0; i < fixture.warning_count; i++)
    told += strstr(fixture.warnings[i], "kernels.db") != NULL;
  ck_assert_int_eq(told, 1);
  ck_assert_int_eq(kill(writer, SIGKILL), 0);
  ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
  fatune_session_close(session);
}
END_TEST

Suite *make_single_flight_suite(void) {
  Suite *const suite = suite_create("single_flight");
  TCase *const tests = tcase_create("single_flight");
  tcase_set_timeout(tests, slow_or(60, 600));
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, threads_compile_a_missing_kernel_once);
  tcase_add_test(tests, threads_share_a_failure);
  tcase_add_test(tests, processes_compile_a_missing_kernel_once);
  tcase_add_test(tests, a_killed_owner_is_followed_at_once);
  tcase_add_test(tests, a_stuck_owner_is_passed);
  tcase_add_test(tests, a_stuck_thread_is_passed);
  tcase_add_test(tests, without_claims_it_goes_on);
  tcase_add_test(tests, a_stuck_writer_holds_nobody_up);
  suite_add_tcase(suite, tests);
  return suite;
}
