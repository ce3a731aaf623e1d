/* test_gpu_scores.c: 200 random score and mask functions against float64 on the CPU.
 * in -> out: functions of a seed, each with a request of the matrices, one in three of a backward
 * -> every row checked by ft_problem_verify, with the default config or with a random legal one.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone. */
#include <stdlib.h>

#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_suites.h"
#include "tuner/verify/problem.h"

enum { CASES = 200 };

START_TEST(every_function_is_right) {
  struct gpu_findings findings = {0};
  int first, backwards = 0;
  int count = gpu_chosen_cases(&first);
  if (count > CASES) count = CASES;
  struct gpu_case *const cases = calloc((size_t)count, sizeof *cases);
  ck_assert_ptr_nonnull(cases);
  for (int i = 0; i < count; i++) gpu_case_make_scored(&cases[i], first + i);
  findings.worst_case = first;

  const double begin = gpu_seconds();
  const int uncompiled = gpu_cases_compile(cases, count);
  const double compiled = gpu_seconds();
  for (int i = 0; i < count; i++) {
    struct ft_problem *problem = NULL;
    gpu_assert_ok(ft_problem_make(&problem, gpu_lab()->session, &cases[i].options));
    gpu_run_config(&findings, &cases[i], 0, problem);
    ft_problem_free(problem);
    backwards += cases[i].options.request.pass == FT_BACKWARD;
  }
  gpu_report("scores", &findings, cases, count, compiled - begin, gpu_seconds() - compiled);
  free(cases);
  ck_assert_int_eq(uncompiled, 0);
  ck_assert_int_eq(findings.wrong, 0);
  ck_assert_int_eq(findings.runs, count);
  ck_assert_int_ge(backwards, count / 3);
}
END_TEST

Suite *make_gpu_scores_suite(void) {
  Suite *const suite = suite_create("gpu_scores");
  TCase *const tests = tcase_create("scores");
  tcase_add_test(tests, every_function_is_right);
  suite_add_tcase(suite, tests);
  return suite;
}
