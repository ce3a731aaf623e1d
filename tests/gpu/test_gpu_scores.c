/* test_gpu_scores.c: 200 random score and mask functions against float64 on the CPU.
 * in -> out: functions of a seed, each with a request of the matrices, one in three of a backward
 * -> every row checked by ft_problem_verify, with the default config or with a random legal one.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone. */
#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_suites.h"

enum { CASES = 200 };

static int backwards;

static void make(struct gpu_case *one, int index) {
  gpu_case_make_scored(one, index);
  backwards += one->options.request.pass == FT_BACKWARD;
}

START_TEST(every_function_is_right) {
  int first;
  const int chosen = gpu_chosen_cases(&first), count = chosen < CASES ? chosen : CASES;
  backwards = 0;
  gpu_check_requests("scores", CASES, 1, make);
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
