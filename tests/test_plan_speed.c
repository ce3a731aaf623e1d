/* test_plan_speed.c: what a plan costs where its kernel is in a cache.
 * in -> out: a cache or a shipped file, a new process -> time of its first plan; a plan that lives
 * -> time of the next one of the request -> Check suite. FATUNE_TEST_SLOW=1: the times that are
 * promised. */
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

enum { PROCESSES = 20 };

#define REQUEST "forward bf16 d128 hq32 hkv8 nq4096 causal"

static const double PROMISED_NEW_PROCESS_MS = 3, PROMISED_SHIPPED_MS = 3, PROMISED_AGAIN_NS = 200;

static struct fixture fixture;
static const char *system_path = "";
static int may_compile; /* as fatune_session_options.compile */

static void set_up(void) {
  use_fake_cuda();
  use_fake_nvrtc();
  fixture_open(&fixture);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static double processor_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static fatune_session *open_session(void) {
  fatune_session *session;
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.cache_dir = fixture.folder;
  options.system_path = system_path;
  options.compile = may_compile;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

/* From the first call to a plan that could run, in milliseconds of the processor. */
static double first_plan(void) {
  const fatune_request request = fake_request(REQUEST);
  fatune_plan *plan;
  const double begin = processor_ms();
  fatune_session *const session = open_session();
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  const double end = processor_ms();
  fatune_plan_free(plan);
  fatune_session_close(session);
  return end - begin;
}

static double first_plan_of_a_new_process(void) {
  int ends[2];
  double ms = -1;
  ck_assert_int_eq(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    ms = first_plan();
    _exit(write(ends[1], &ms, sizeof ms) == sizeof ms ? 0 : 1);
  }
  close(ends[1]);
  ck_assert_int_eq(read(ends[0], &ms, sizeof ms), sizeof ms);
  close(ends[0]);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  return ms;
}

/* Of as many processes, the least. */
static void assert_soon(const char *what, double promised_ms) {
  double least = 1e9;
  for (int i = 0; i < PROCESSES; i++) {
    const double ms = first_plan_of_a_new_process();
    if (ms < least) least = ms;
  }
  printf("plan_speed: first plan of a new process, %s: %.2f ms\n", what, least);
  const double limit = tests_are_slow() ? promised_ms : 10 * promised_ms;
  ck_assert_msg(least <= limit, "%s: %.2f ms; promised are %.2f", what, least, limit);
}

START_TEST(a_new_process_has_a_cached_kernel_soon) {
  first_plan(); /* fills the cache */
  assert_soon("kernel in kernels.db", PROMISED_NEW_PROCESS_MS);
}
END_TEST

/* Exports the kernel of the request with a trial that names it. Then the user has no cache any
 * more, and nothing may be compiled. */
static void ship(void) {
  struct ft_trial trial;
  char file[128];
  fatune_session *const session = open_session();
  fake_measured(session, REQUEST, &trial);
  snprintf(file, sizeof file, "%s/sm_90.fatune", fixture.root);
  assert_ok(export_store(session->store, "sm_90", NULL, file, NULL, NULL));
  fatune_session_close(session);
  nftw(fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

START_TEST(a_new_process_has_a_shipped_kernel_soon) {
  ship();
  system_path = fixture.root;
  may_compile = -1;
  assert_soon("from a shipped file alone", PROMISED_SHIPPED_MS);
}
END_TEST

START_TEST(a_plan_that_is_there_is_had_at_once) {
  enum { ROUNDS = 50, CALLS = 1000 };
  const fatune_request request = fake_request(REQUEST);
  fatune_session *const session = open_session();
  fatune_plan *plan, *again;
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  double least = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    const double begin = processor_ms();
    for (int i = 0; i < CALLS; i++) {
      fatune_plan_make(&again, session, &request);
      fatune_plan_free(again);
    }
    const double ns = 1e6 * (processor_ms() - begin) / CALLS;
    if (ns < least) least = ns;
    ck_assert_ptr_eq(again, plan);
  }
  printf("plan_speed: a plan that is there, made and freed %.0f ns\n", least);
  const double limit = tests_are_slow() ? PROMISED_AGAIN_NS : 10 * PROMISED_AGAIN_NS;
  ck_assert_msg(least <= limit, "%.0f ns; promised are %.0f", least, limit);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

Suite *make_plan_speed_suite(void) {
  Suite *const suite = suite_create("plan_speed");
  TCase *const tests = tcase_create("speed");
  tcase_set_timeout(tests, 300);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_new_process_has_a_cached_kernel_soon);
  tcase_add_test(tests, a_new_process_has_a_shipped_kernel_soon);
  tcase_add_test(tests, a_plan_that_is_there_is_had_at_once);
  suite_add_tcase(suite, tests);
  return suite;
}
