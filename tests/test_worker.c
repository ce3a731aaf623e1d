/* test_worker.c: a candidate that takes its process with it costs one worker, is recorded by name,
 * and is not tried again. in -> out: planted candidates on a simulated machine, workers by fork;
 * the program on the fake GPU -> rows -> Check suite. */
#include "tests/suites.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "generator/status.h"
#include "tests/run_program.h"
#include "tests/simulated_machine.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tuner/search/worker.h"

enum { CRASHES = 3, STALLS = 5, IS_NAN = 7, LOSES_GPU = 9 };

/* How long a worker may be silent, in seconds: instrumented, a verification takes its time. */
#define SILENCE_SECONDS FATUNE_TEST_COST
#define SILENCE         TEST_COST_TEXT

static struct fixture fixture;
static struct setting *setting;
static struct ft_worker_seat *seat;
static int workers_lost;

static int planted_verify(void *payload, void *loaded, struct ft_comparison *comparison) {
  const int index = *(int *)loaded;
  if (index == CRASHES) {
    signal(SIGSEGV, SIG_DFL); /* as fake_die */
    raise(SIGSEGV);
  }
  if (index == STALLS)
    for (;;) pause();
  return simulated_verify(payload, loaded, comparison);
}

static void watch(void *payload, const struct ft_trial *trial) {
  (void)payload;
  ft_worker_watch(seat, trial);
}

/* Rows of the workers before, as a rig has them. */
static bool take_row(void *payload, const struct ft_trial *trial) {
  struct simulated *const machine = payload;
  machine->rows[machine->row_count++] = *trial;
  return true;
}

static int work(void) {
  struct simulated *const machine = setting->machine;
  machine->store = open_store(&fixture);
  ft_store_trials(machine->store, &setting->stamp.bucket, setting->stamp.device, take_row, machine);
  const int status = search(setting);
  ft_store_close(machine->store);
  machine->store = NULL;
  return status == FT_E_DEVICE ? FT_WORKER_LOST : status == FT_OK ? 0 : 1;
}

static bool lost(void *payload, const struct ft_trial *trial, const char *why) {
  (void)payload, (void)why;
  workers_lost++;
  if (!trial) return workers_lost < 10;
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_trial_put(store, trial));
  ft_store_close(store);
  return workers_lost < 10;
}

static int supervise(double silence_seconds) {
  const struct ft_supervision how = {
      .seat = seat, .silence_seconds = silence_seconds, .lost = lost};
  int code = -1;
  if (!ft_supervise(&how, &code)) _exit(work());
  return code;
}

/* A core dump takes its time. */
static void dump_no_core(void) {
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

static void set_up(void) {
  dump_no_core();
  fixture_open(&fixture);
  seat = ft_worker_memory(sizeof *seat);
  ck_assert_ptr_nonnull(seat);
  setting = setting_make(FT_EFFORT_QUICK);
  setting->options.watch = watch;
  setting->rig.verify = planted_verify;
  setting->machine->fates[IS_NAN] = WRONG;
  setting->machine->fates[LOSES_GPU] = FAULTS;
}

static void tear_down(void) {
  setting_free(setting);
  ft_worker_forget(seat, sizeof *seat);
  fixture_close(&fixture);
}

START_TEST(planted_candidates_cost_one_worker_each) {
  ck_assert_int_eq(supervise(SILENCE_SECONDS), 0);
  ck_assert_int_eq(workers_lost, 3); /* NaN costs none */
  struct simulated *const machine = setting->machine;
  struct ft_store *const store = open_store(&fixture);
  ft_store_trials(store, &setting->stamp.bucket, setting->stamp.device, take_row, machine);
  static const struct {
    int candidate;
    enum ft_outcome outcome;
    const char *reason;
  } expected[] = {{CRASHES, FT_OUTCOME_LAUNCH, "ended by signal 11"},
                  {STALLS, FT_OUTCOME_TIMEOUT, "no answer for " SILENCE " s"},
                  {IS_NAN, FT_OUTCOME_WRONG, "O is off"},
                  {LOSES_GPU, FT_OUTCOME_LAUNCH, "simulated fault"}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const struct ft_trial *row = NULL;
    ck_assert_int_eq(rows_of(setting, expected[i].candidate, &row), 1); /* tried once */
    ck_assert_int_eq(row->outcome, expected[i].outcome);
    ck_assert_msg(strstr(row->reason, expected[i].reason) != NULL, "%s", row->reason);
  }
  for (int n = 0; n < setting->candidates.count; n++)
    ck_assert_int_ge(rows_of(setting, n, NULL), 1);
  const struct ft_query query = {.request = &setting->stamp.request,
                                 .device = setting->stamp.device};
  struct ft_choice choice;
  assert_ok(ft_store_choose(store, &query, &choice));
  ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
  ck_assert_int_eq(index_of(machine, &choice.config), 1); /* the fastest one */
  ft_store_close(store);
}
END_TEST

START_TEST(without_a_fault_there_is_one_worker) {
  setting->rig.verify = simulated_verify;
  setting->machine->fates[LOSES_GPU] = RUNS;
  ck_assert_int_eq(supervise(SILENCE_SECONDS), 0);
  ck_assert_int_eq(workers_lost, 0);
}
END_TEST

/* No candidate is at fault. The supervisor learns of each loss, and gives up when it is told to. */
START_TEST(a_worker_that_dies_of_itself_is_told) {
  const struct ft_supervision how = {
      .seat = seat, .silence_seconds = SILENCE_SECONDS, .lost = lost};
  int code = -1;
  if (!ft_supervise(&how, &code)) abort();
  ck_assert_int_eq(workers_lost, 10);
  ck_assert_int_eq(code, FT_WORKER_LOST);
}
END_TEST

START_TEST(a_signal_is_handed_on) {
  const struct ft_supervision how = {.seat = seat, .silence_seconds = 60, .lost = lost};
  int code = -1;
  const pid_t supervisor = getpid();
  if (!ft_supervise(&how, &code)) {
    kill(supervisor, SIGTERM);
    for (;;) pause(); /* it dies of it */
  }
  ck_assert_int_eq(code, 128 + SIGTERM);
  ck_assert_int_eq(workers_lost, 0);
}
END_TEST

START_TEST(a_worker_dies_with_its_supervisor) {
  int ends[2];
  char byte;
  ck_assert_int_eq(pipe(ends), 0);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    const struct ft_supervision how = {.seat = seat, .silence_seconds = 60, .lost = lost};
    int code;
    close(ends[0]);
    if (ft_supervise(&how, &code)) _exit(0);
    if (write(ends[1], "w", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ends[1]);
  ck_assert_int_eq(read(ends[0], &byte, 1), 1);
  kill(supervisor, SIGKILL);
  ck_assert_int_eq(waitpid(supervisor, NULL, 0), supervisor);
  ck_assert_int_eq(read(ends[0], &byte, 1), 0); /* nobody holds the other end */
}
END_TEST

/* ---- the program ---- */

static void set_up_program(void) {
  dump_no_core();
  begin_program_test();
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  setenv("FATUNE_WORKER_SECONDS", SILENCE, 1);
  setenv("FATUNE_FAKE_MS", "1", 1);
}

static const struct {
  const char *does, *outcome, *message;
} planted[] = {{"crash", "launch", "ended by signal 11"},
               {"hang", "timeout", "no answer for " SILENCE " s"}};

/* The third launch takes the process with it, once. The fake GPU runs no kernel: all others are
 * wrong. */
START_TEST(the_program_goes_on) {
  char value[128], path[128];
  snprintf(value, sizeof value, "cuLaunchKernel:3:%s", planted[_i].does);
  snprintf(path, sizeof path, "%s/once", folder);
  setenv("FATUNE_FAKE_DIES", value, 1);
  setenv("FATUNE_FAKE_ONCE", path, 1);
  expect("tune fp16 d128 nq128 --effort quick --shard 1/4 --json", 5);
  expect_message(planted[_i].message);
  expect_message("another worker goes on");
  json_t *root = document("tune");
  ck_assert_int_eq(json_integer_value(json_object_get(root, "workers_lost")), 1);
  const json_t *const result = json_array_get(json_object_get(root, "results"), 0);
  ck_assert_int_eq(json_integer_value(json_object_get(result, "tried")), 4);
  ck_assert_int_eq(json_integer_value(json_object_get(result, "wrong")), 3);
  ck_assert_int_eq(json_integer_value(json_object_get(result, "failed")), 1);
  json_decref(root);
  expect("cache list --all --json", 0);
  root = document("cache");
  const json_t *const rows = json_object_get(root, "trials"), *row;
  size_t i;
  int named = 0;
  ck_assert_uint_eq(json_array_size(rows), 4);
  json_array_foreach(rows, i, row) named +=
      strcmp(text_at(row, "outcome"), planted[_i].outcome) == 0 &&
      strstr(text_at(row, "reason"), planted[_i].message) != NULL;
  ck_assert_int_eq(named, 1);
  json_decref(root);
  expect("cache list --all", 0);
  expect_output(planted[_i].message);
  expect("explain fp16 d128 nq128", 0);
  expect_output("of 4 trials here none is fit, so the hand-written default");
  expect("tune fp16 d128 nq128 --effort quick --shard 1/4 --json", 5); /* it is not tried again */
  expect_message("3 wrong, 0 spilled, 1 failed otherwise; the first ");
  root = document("tune");
  ck_assert_ptr_null(json_object_get(root, "workers_lost"));
  json_decref(root);
}
END_TEST

/* Every launch takes its process with it. After eight workers the request is left. */
START_TEST(a_request_costs_eight_workers_at_most) {
  setenv("FATUNE_FAKE_DIES", "cuLaunchKernel:1:crash", 1);
  expect("tune fp16 d128 nq128 --effort quick", 1);
  expect_message("8 workers were lost");
}
END_TEST

Suite *make_worker_suite(void) {
  Suite *const suite = suite_create("worker");
  TCase *const tests = tcase_create("worker");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, planted_candidates_cost_one_worker_each);
  tcase_add_test(tests, without_a_fault_there_is_one_worker);
  tcase_add_test(tests, a_worker_that_dies_of_itself_is_told);
  tcase_add_test(tests, a_signal_is_handed_on);
  tcase_add_test(tests, a_worker_dies_with_its_supervisor);
  suite_add_tcase(suite, tests);
  TCase *const whole = tcase_create("program");
  tcase_set_timeout(whole, 120);
  tcase_add_checked_fixture(whole, set_up_program, end_program_test);
  tcase_add_loop_test(whole, the_program_goes_on, 0, sizeof planted / sizeof *planted);
  tcase_add_test(whole, a_request_costs_eight_workers_at_most);
  suite_add_tcase(suite, whole);
  return suite;
}
