/* test_replay.c: repeats of a launch as a graph, where the driver captures it and the launch is
 * short. in -> out: the fake driver, with and without graphs -> launches, calls -> Check suite. */
#include "tests/suites.h"

#include "generator/status.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tuner/search/replay.h"

enum { REPEATS = 8, FAILING = 3 };
static const double SHORT_US = 5, LONG_US = 5000;

static struct fake_lab lab;

static void set_up(void) {
  use_fake_nvrtc();
  setenv("FATUNE_FAKE_GRAPHS", "1", 1);
  lab = fake_lab_open();
}

static void tear_down(void) {
  unsetenv("FATUNE_FAKE_GRAPHS");
}

static int count_launch(void *payload, cu_stream stream) {
  (void)stream;
  *(int *)payload += 1;
  return FT_OK;
}

static int fail_third(void *payload, cu_stream stream) {
  (void)stream;
  return ++*(int *)payload == FAILING ? ft_fail(FT_E_DEVICE, "the third launch") : FT_OK;
}

/* Launches counted after open, and after open and two runs. */
static void expect(double us, int repeats, int opened, int run, int replayed) {
  int launches = 0;
  struct ft_replay replay;
  const struct ft_runnable runnable = {count_launch, &launches};
  ft_replay_open(&replay, lab.session, &runnable, repeats, us, NULL);
  ck_assert_int_eq(launches, opened);
  ck_assert_int_eq(ft_replay_run(&replay, NULL), FT_OK);
  ck_assert_int_eq(ft_replay_run(&replay, NULL), FT_OK);
  ck_assert_int_eq(launches, run);
  ck_assert_int_eq(lab.cuda.calls("cuGraphLaunch"), replayed);
  ft_replay_close(&replay);
  fake_lab_close(&lab); /* no graph is left */
}

START_TEST(short_launches_are_captured_once) {
  expect(SHORT_US, REPEATS, REPEATS, REPEATS, 2);
}
END_TEST

START_TEST(long_launches_are_enqueued) {
  expect(LONG_US, REPEATS, 0, 2 * REPEATS, 0);
}
END_TEST

START_TEST(a_single_launch_is_enqueued) {
  expect(SHORT_US, 1, 0, 2, 0);
}
END_TEST

START_TEST(a_driver_that_captures_nothing_gets_launches) {
  unsetenv("FATUNE_FAKE_GRAPHS");
  expect(SHORT_US, REPEATS, 0, 2 * REPEATS, 0);
}
END_TEST

/* What fails while it is captured is found out when it is launched. */
START_TEST(a_failure_is_not_replayed) {
  int launches = 0;
  struct ft_replay replay;
  const struct ft_runnable runnable = {fail_third, &launches};
  ft_replay_open(&replay, lab.session, &runnable, REPEATS, SHORT_US, NULL);
  ck_assert_ptr_null(replay.graph);
  launches = 0;
  ck_assert_int_eq(ft_replay_run(&replay, NULL), FT_E_DEVICE);
  ck_assert_int_eq(launches, FAILING);
  ft_replay_close(&replay);
  fake_lab_close(&lab);
}
END_TEST

Suite *make_replay_suite(void) {
  Suite *const suite = suite_create("replay");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, short_launches_are_captured_once);
  tcase_add_test(tests, long_launches_are_enqueued);
  tcase_add_test(tests, a_single_launch_is_enqueued);
  tcase_add_test(tests, a_driver_that_captures_nothing_gets_launches);
  tcase_add_test(tests, a_failure_is_not_replayed);
  suite_add_tcase(suite, tests);
  return suite;
}
