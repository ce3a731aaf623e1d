/* test_record.c: FATUNE_RECORD: what an application runs is counted and timed, and written.
 * in -> out: plans made and run on the fake GPU -> lines of a file -> Check suite. */
#include "tests/suites.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "runtime/record.h"
#include "tests/fake_lab.h"
#include "tests/store_fixture.h"

#define FIRST  "forward bf16 d64 nq128"
#define SECOND "forward bf16 d64 nq256"

static struct fixture fixture;
static struct fake_controls cuda;
static fatune_session *session;
static fatune_session *inherited; /* by a forked child, and not its own to close */
static char path[128];

/* A context is current, as while a program runs. */
static const struct fake_gpu h200 = {"NVIDIA H200", 90, 132, 1, 0, 1};
static const struct fake_gpu capturing = {"NVIDIA H200", 90, 132, 1, 1, 1};

static void let_fail(const char *failure) {
  cuda.reset(failure);
  cuda.gpu(&h200);
}

static fatune_session *open_session(void) {
  fatune_session *opened;
  fatune_session_options options = memory_only_options();
  options.log = note_warning;
  options.payload = &fixture;
  ck_assert_status(fatune_session_open(&opened, &options), FATUNE_OK);
  return opened;
}

static void set_up(void) {
  fixture_open(&fixture);
  snprintf(path, sizeof path, "%s/recorded", fixture.root);
  setenv("FATUNE_RECORD", path, 1);
  setenv("FATUNE_FAKE_MS", "0.25", 1);
  cuda = use_fake_cuda();
  cuda.gpu(&h200);
  use_fake_nvrtc();
  session = open_session();
}

static void close_session(void) {
  fatune_session_close(session);
  session = NULL;
  ck_assert_int_eq(cuda.live(), 0);
  ck_assert_int_eq(cuda.depth(), 1);
}

static void tear_down(void) {
  if (session) close_session();
  fixture_close(&fixture);
}

static void *const STREAM = &fixture; /* any that is not NULL */

static fatune_plan *make_plan(const char *words) {
  const fatune_request request = fake_request(words);
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  return plan;
}

/* words: those that the plan was made of. */
static void run_plan(fatune_plan *plan, const char *words, int count) {
  const fatune_request request = fake_request(words);
  const fatune_arguments arguments = fake_arguments(&request);
  for (int i = 0; i < count; i++)
    ck_assert_status(fatune_plan_run(plan, &arguments, STREAM), FATUNE_OK);
}

static void run_times(const char *words, int count) {
  fatune_plan *const plan = make_plan(words);
  run_plan(plan, words, count);
  fatune_plan_free(plan);
}

/* The number behind `name`, if the line goes on with it; *line is then what comes after it. Else 0.
 */
static double take_number(char **line, const char *name) {
  const size_t length = strlen(name);
  if (strncmp(*line, name, length) != 0) return 0;
  const double number = strtod(*line + length, line);
  while (**line == ' ') ++*line;
  return number;
}

/* Runs and time of a request, summed over its lines; lines without runs= are comments. */
static double recorded(const char *request, double *us) {
  struct bytes bytes = read_bytes(path);
  bytes.data[bytes.size] = '\0';
  double runs = 0;
  char *rest = (char *)bytes.data;
  *us = 0;
  for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
    if (line[0] == '#' || line[0] == '\0') continue;
    const double these = take_number(&line, "runs="), time = take_number(&line, "us=");
    ck_assert_msg(these > 0, "%s", line);
    if (strcmp(line, request) != 0) continue;
    runs += these;
    *us += time;
  }
  free(bytes.data);
  return runs;
}

static void assert_recorded(const char *request, double runs, double us) {
  double got_us;
  const double got = recorded(request, &got_us);
  ck_assert_msg(got == runs, "%s: %g runs, not %g", request, got, runs);
  ck_assert_msg(fabs(got_us - us) <= 0.06, "%s: %g us, not %g", request, got_us, us);
}

START_TEST(runs_are_counted_and_timed) {
  run_times(FIRST, 100);
  run_times(SECOND, 3);
  run_times(FIRST, 17);
  /* Of 117 runs the 2nd to the 8th and each 32nd: two events each. */
  ck_assert_int_eq(cuda.calls("cuEventRecord"), 2 * (7 + 3) + 2 * 2);
  close_session();
  assert_recorded(FIRST, 117, 117 * 250.0);
  assert_recorded(SECOND, 3, 3 * 250.0);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(nothing_is_recorded_unless_asked_for) {
  close_session();
  ck_assert_int_eq(unlink(path), 0); /* made when the session was opened */
  setenv("FATUNE_RECORD", "", 1);
  session = open_session();
  run_times(FIRST, 40);
  ck_assert_int_eq(cuda.calls("cuEventRecord"), 0);
  close_session();
  ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

/* In a capture events have no time; a launch is counted once, when it is captured. */
START_TEST(captured_runs_are_counted_alone) {
  fatune_plan *const plan = make_plan(FIRST);
  cuda.gpu(&capturing);
  run_plan(plan, FIRST, 20);
  fatune_plan_free(plan);
  ck_assert_int_eq(cuda.calls("cuEventRecord"), 0);
  close_session();
  assert_recorded(FIRST, 20, 0);
}
END_TEST

/* The second run would be timed, but its launch fails. It is counted, and has no event behind it.
 */
START_TEST(a_failed_launch_is_not_timed) {
  fatune_plan *const plan = make_plan(FIRST);
  const fatune_request request = fake_request(FIRST);
  const fatune_arguments arguments = fake_arguments(&request);
  run_plan(plan, FIRST, 1);
  let_fail("cuLaunchKernel:1:1");
  ck_assert_status(fatune_plan_run(plan, &arguments, STREAM), FATUNE_E_DEVICE);
  ck_assert_int_eq(cuda.calls("cuEventRecord"), 1);
  let_fail(NULL);
  run_plan(plan, FIRST, 3);
  fatune_plan_free(plan);
  fatune_session_close(session);
  session = NULL;
  assert_recorded(FIRST, 5, 5 * 250.0);
}
END_TEST

/* An event that fails costs no run its count; later runs are timed. */
START_TEST(runs_whose_events_fail_are_counted) {
  fatune_plan *const plan = make_plan(FIRST);
  run_plan(plan, FIRST, 1);
  let_fail("cuEventRecord:1:1");
  run_plan(plan, FIRST, 1);
  let_fail("cuEventQuery:1:600"); /* still running */
  run_plan(plan, FIRST, 3);
  fatune_plan_free(plan);
  fatune_session_close(session);
  session = NULL;
  assert_recorded(FIRST, 5, 5 * 250.0);
}
END_TEST

/* Events need no current context to be given back. */
START_TEST(events_are_given_back_though_no_context_can_be_entered) {
  fatune_plan *const plan = make_plan(FIRST);
  run_plan(plan, FIRST, 3);
  fatune_plan_free(plan);
  let_fail("cuCtxPushCurrent_v2:1:719:ever");
  fatune_session_close(session);
  session = NULL;
  ck_assert_int_eq(cuda.calls("cuEventDestroy_v2"), 2);
}
END_TEST

enum { THREADS = 4, RUNS = 2000 };

static void *run_many(void *plan) {
  cuda.gpu(&h200); /* current in this thread, too */
  run_plan(plan, FIRST, RUNS);
  return NULL;
}

START_TEST(threads_lose_no_run) {
  fatune_plan *const plan = make_plan(FIRST);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, run_many, plan);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  fatune_plan_free(plan);
  close_session();
  double us;
  ck_assert_double_eq(recorded(FIRST, &us), THREADS * RUNS);
  ck_assert_double_ge(us, THREADS * RUNS * 250.0 - 0.06); /* another's launch may come in between */
}
END_TEST

/* A process that ends without closing its session, and one that is a fork of it. */
START_TEST(the_end_of_the_process_writes) {
  const pid_t child = fork();
  if (child == 0) {
    inherited = session;
    session = open_session();
    run_times(FIRST, 30);
    const pid_t grandchild = fork(); /* has the counts of its parent and writes none */
    if (grandchild != 0) waitpid(grandchild, NULL, 0);
    exit(0);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  run_times(FIRST, 5);
  close_session();
  double us;
  ck_assert_double_eq(recorded(FIRST, &us), 35);
}
END_TEST

START_TEST(too_many_requests_are_recorded_by_bucket) {
  struct ft_recorder *const recorder = ft_recorder_open(note_warning, &fixture);
  const struct ft_driver driver = {.emulated = true};
  struct ft_request request = request_of("forward bf16 d64 nq1 nk1");
  struct ft_record *last = NULL;
  for (int nk = 1; nk <= FT_RECORDS_MOST + 600; nk++) {
    request.seqlen_k = nk;
    last = ft_recorder_add(recorder, &driver, &request);
    ck_assert_ptr_nonnull(last);
  }
  request.seqlen_k = FT_RECORDS_MOST + 599;
  ck_assert_ptr_eq(ft_recorder_add(recorder, &driver, &request), last);
  ck_assert(!ft_record_begin(last, &driver, STREAM));
  ck_assert(!ft_record_begin(last, &driver, STREAM));
  ft_recorder_close(recorder, NULL);
  assert_recorded("forward bf16 d64 nq1 nk4096", 2, 0);
  assert_warnings(&fixture, 0);
}
END_TEST

/* Told once, when the session is opened; the application runs on. */
static const char *const bad_places[] = {"/nowhere/at/all", "/", "/dev/full"};

START_TEST(a_file_that_cannot_be_written_is_told_once) {
  close_session();
  setenv("FATUNE_RECORD", bad_places[_i], 1);
  session = open_session();
  run_times(FIRST, 20);
  run_times(SECOND, 20);
  close_session();
  assert_warnings(&fixture, 1);
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], bad_places[_i]));
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "FATUNE_RECORD"));
}
END_TEST

/* A last line without its end keeps to itself. */
START_TEST(a_line_that_is_not_ended_stays_one) {
  static const char begun[] = "runs=1 forward bf16 d64 nq999";
  char text[64] = "";
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs(begun, file), 0);
  ck_assert_int_eq(fclose(file), 0);
  run_times(FIRST, 20);
  close_session();
  assert_recorded(FIRST, 20, 20 * 250.0);
  file = fopen(path, "r");
  ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
  fclose(file);
  ck_assert(strncmp(text, begun, strlen(begun)) == 0 && text[strlen(begun)] == '\n');
  assert_warnings(&fixture, 0);
}
END_TEST

/* A pipe that nobody reads would be waited for. */
START_TEST(a_pipe_is_refused) {
  close_session();
  ck_assert(unlink(path) == 0 || errno == ENOENT);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  session = open_session();
  run_times(FIRST, 20);
  close_session();
  assert_warnings(&fixture, 1);
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "it is a pipe; allowed: a file"));
}
END_TEST

Suite *make_record_suite(void) {
  Suite *const suite = suite_create("record");
  TCase *const tests = tcase_create("record");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, runs_are_counted_and_timed);
  tcase_add_test(tests, nothing_is_recorded_unless_asked_for);
  tcase_add_test(tests, captured_runs_are_counted_alone);
  tcase_add_test(tests, a_failed_launch_is_not_timed);
  tcase_add_test(tests, runs_whose_events_fail_are_counted);
  tcase_add_test(tests, events_are_given_back_though_no_context_can_be_entered);
  tcase_add_test(tests, threads_lose_no_run);
  tcase_add_test(tests, the_end_of_the_process_writes);
  tcase_add_test(tests, too_many_requests_are_recorded_by_bucket);
  tcase_add_test(tests, a_line_that_is_not_ended_stays_one);
  tcase_add_test(tests, a_pipe_is_refused);
  tcase_add_loop_test(tests, a_file_that_cannot_be_written_is_told_once, 0,
                      sizeof bad_places / sizeof *bad_places);
  suite_add_tcase(suite, tests);
  return suite;
}
