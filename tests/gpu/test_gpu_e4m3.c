/* test_gpu_e4m3.c: the features of a forward in e4m3 against float64 on the CPU.
 * in -> out: 96 requests, each with its default and a random legal config, of mma_forward in every
 * second one; long ones, two by mma_forward -> every row checked by ft_problem_verify.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone. */
#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_suites.h"

enum { CASES = 96 };

START_TEST(every_request_is_right) {
  gpu_check_requests("e4m3", CASES, GPU_CONFIGS, gpu_case_make_e4m3);
}
END_TEST

static const struct {
  const char *request, *config; /* NULL: the default */
} large[] = {
    {"e4m3 d128 hq16 hkv4 b2 nq8192 causal", NULL},
    {"e4m3 d64 hq8 b2 nq16384", NULL},
    {"e4m3 d256 hq8 nq4000 nk9000 causal", NULL},
    {"e4m3 d128 hq16 hkv4 b2 nq8192 causal descales=128", NULL},
    {"e4m3 d128 hq8 nq16384 descales=64", NULL},
    {"e4m3 fast_exp d64 hq8 b2 nq16384", NULL},
    {"e4m3 fast_exp d64 hq8 b2 nq8192 causal", NULL},
    {"e4m3 fast_exp d128 hq16 hkv4 b2 nq8192 causal", NULL},
    {"e4m3 d128 hq16 hkv4 b2 nq8192 causal",
     "mma_forward block_m=128 block_n=32 warps=8 stages=2 ctas_per_sm=1"},
    {"e4m3 o=fp16 d64 hq8 b2 nq16384",
     "mma_forward block_m=128 block_n=32 warps=4 stages=2 ctas_per_sm=2"},
};
enum { LARGE = sizeof large / sizeof *large };

START_TEST(large_problems_are_right) {
  gpu_check_large(large[_i].request, large[_i].config, 900 + (uint64_t)_i);
}
END_TEST

Suite *make_gpu_e4m3_suite(void) {
  Suite *const suite = suite_create("gpu_e4m3");
  TCase *const tests = tcase_create("e4m3");
  tcase_add_test(tests, every_request_is_right);
  suite_add_tcase(suite, tests);
  if (gpu_lab()->session->driver.emulated) return suite; /* which is too slow for long sequences */
  TCase *const long_ones = tcase_create("large");
  tcase_add_loop_test(long_ones, large_problems_are_right, 0, LARGE);
  suite_add_tcase(suite, long_ones);
  return suite;
}
