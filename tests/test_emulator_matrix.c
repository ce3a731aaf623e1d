/* test_emulator_matrix.c: the cross-product of features on emulated GPUs, against float64.
 * in -> out: 240 requests, each with the default or a random legal config, on four GPUs in turn ->
 * every row checked by ft_problem_verify. Half of them run, or with FATUNE_TEST_SLOW=1 all; under
 * the sanitizers a sixth. */
#include "tests/matrix_run.h"
#include "tests/suites.h"

enum { CASES = 240 };

static const struct matrix_plan plan = {
    .cases = CASES,
    .sanitized_share = 6,
    .size = {.longest = 300, .rows = 512, .rows_seldom = 1024, .tile = 64},
    .choose = matrix_choose};

START_TEST(requests_are_right) {
  matrix_run_slice(&plan, _i);
}
END_TEST

START_TEST(the_matrix_covers_what_it_says) {
  static const struct matrix_least least = {
      .dim = 7, .combination = CASES / MATRIX_COMBINATIONS, .layout = 60, .feature = 8};
  matrix_check_cover(&plan, &least, 10);
}
END_TEST

START_TEST(those_that_run_are_spread) {
  matrix_check_spread(&plan);
}
END_TEST

Suite *make_emulator_matrix_suite(void) {
  Suite *const suite = suite_create("emulator_matrix");
  TCase *const tests = tcase_create("matrix");
  tcase_set_timeout(tests, 600);
  tcase_add_test(tests, the_matrix_covers_what_it_says);
  tcase_add_test(tests, those_that_run_are_spread);
  tcase_add_loop_test(tests, requests_are_right, 0, MATRIX_SLICES);
  suite_add_tcase(suite, tests);
  return suite;
}
