/* test_gpu_backward.c: the cross-product of features of the backward against float64 on the CPU.
 * in -> out: 341 requests, each with its default and a random legal config -> fences, poison and
 * every row of dQ, dK, dV checked by ft_problem_verify, those of deterministic requests once more.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone. */
#include <stdlib.h>

#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/matrix_cases.h"
#include "tuner/verify/problem.h"

static void run_case(struct gpu_findings *findings, const struct gpu_case *one) {
  struct ft_problem *problem = NULL;
  gpu_assert_ok(ft_problem_make(&problem, gpu_lab()->session, &one->options));
  for (int config = 0; config < GPU_CONFIGS; config++)
    gpu_run_config(findings, one, config, problem);
  ft_problem_free(problem);
}

START_TEST(every_request_is_right) {
  struct gpu_findings findings = {0};
  int first;
  const int count = gpu_chosen_cases(&first);
  struct gpu_case *const cases = calloc((size_t)count, sizeof *cases);
  ck_assert_ptr_nonnull(cases);
  for (int i = 0; i < count; i++) gpu_case_make_backward(&cases[i], first + i);
  findings.worst_case = first;

  const double begin = gpu_seconds();
  const int uncompiled = gpu_cases_compile(cases, count);
  const double compiled = gpu_seconds();
  for (int i = 0; i < count; i++) run_case(&findings, &cases[i]);
  gpu_report("backward", &findings, cases, count, compiled - begin, gpu_seconds() - compiled);
  free(cases);
  ck_assert_int_eq(uncompiled, 0);
  ck_assert_int_eq(findings.wrong, 0);
  ck_assert_int_eq(findings.runs, count * GPU_CONFIGS);
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
