/* test_emulator_backward.c: the same of the backward.
 * in -> out: 192 requests, each with the default or a random legal config, on four GPUs in turn ->
 * every row checked by ft_problem_verify. Half of them run, or with FATUNE_TEST_SLOW=1 all; under
 * the sanitizers a eighth. */
#include "tests/matrix_run.h"
#include "tests/suites.h"

enum { CASES = 192 };

static const struct matrix_plan plan = {
    .cases = CASES,
    .sanitized_share = 8,
    .size = {.longest = 260, .rows = 384, .rows_seldom = 768, .tile = 64},
    .choose = matrix_choose_backward};

START_TEST(requests_are_right) {
  matrix_run_slice(&plan, _i);
}
END_TEST

START_TEST(the_matrix_covers_what_it_says) {
  static const struct matrix_least least = {.pass = FT_BACKWARD,
                                            .dim = 6,
                                            .combination = CASES / MATRIX_COMBINATIONS,
                                            .layout = 48,
                                            .feature = 6};
  matrix_check_cover(&plan, &least, 8);
}
END_TEST

START_TEST(those_that_run_are_spread) {
  matrix_check_spread(&plan);
}
END_TEST

Suite *make_emulator_backward_suite(void) {
  Suite *const suite = suite_create("emulator_backward");
  TCase *const tests = tcase_create("matrix");
  tcase_set_timeout(tests, 600);
  tcase_add_test(tests, the_matrix_covers_what_it_says);
  tcase_add_test(tests, those_that_run_are_spread);
  tcase_add_loop_test(tests, requests_are_right, 0, MATRIX_SLICES);
  suite_add_tcase(suite, tests);
  return suite;
}
