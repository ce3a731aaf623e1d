/* test_gpu_fp32.c: fp32 and tf32, forward and backward, against float64 on the CPU.
 * in -> out: 160 requests of the matrices, each with its default and a random legal config -> every
 * row checked by ft_problem_verify. FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the
 * N-th request alone. */
#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_suites.h"

enum { CASES = 160 };

START_TEST(every_request_is_right) {
  gpu_check_requests("fp32", CASES, GPU_CONFIGS, gpu_case_make_fp32);
}
END_TEST

static const char *const large_requests[] = {
    "fp32 d128 hq16 hkv4 nq8192 causal", "fp32 d64 hq8 nq300 nk30000", "tf32 d64 hq8 b2 nq8192"};

START_TEST(large_problems_are_right) {
  gpu_check_large(large_requests[_i], NULL, 900 + (uint64_t)_i);
}
END_TEST

Suite *make_gpu_fp32_suite(void) {
  Suite *const suite = suite_create("gpu_fp32");
  TCase *const tests = tcase_create("fp32");
  tcase_add_test(tests, every_request_is_right);
  suite_add_tcase(suite, tests);
  if (gpu_lab()->session->driver.emulated) return suite; /* which is too slow for long sequences */
  TCase *const large = tcase_create("large");
  tcase_add_loop_test(large, large_problems_are_right, 0, 3);
  suite_add_tcase(suite, large);
  return suite;
}
