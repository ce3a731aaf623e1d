/* test_gpu_backward.c: the cross-product of features of the backward against float64 on the CPU.
 * in -> out: 341 requests, each with its default and a random legal config -> fences, poison and
 * every row of dQ, dK, dV checked by ft_problem_verify, those of deterministic requests once more.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone. */
#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/matrix_cases.h"
#include "tuner/verify/problem.h"

START_TEST(every_request_is_right) {
  gpu_check_requests("backward", GPU_CASES, GPU_CONFIGS, gpu_case_make_backward);
}
END_TEST

START_TEST(the_matrix_covers_what_it_says) {
  static const struct matrix_least least = {
      .pass = FT_BACKWARD, .dim = 11, .combination = 14, .layout = 80, .feature = 10};
  struct matrix_tally tally = {0};
  for (int i = 0; i < GPU_CASES; i++) {
    struct ft_problem_options options;
    gpu_case_options_backward(&options, i);
    matrix_count(&tally, &options);
  }
  matrix_assert_covers(&tally, &least);
}
END_TEST

Suite *make_gpu_backward_suite(void) {
  Suite *const suite = suite_create("gpu_backward");
  TCase *const tests = tcase_create("matrix");
  tcase_add_test(tests, the_matrix_covers_what_it_says);
  tcase_add_test(tests, every_request_is_right);
  suite_add_tcase(suite, tests);
  return suite;
}
