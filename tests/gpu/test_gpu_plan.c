/* test_gpu_plan.c: what a plan costs and what it must not do.
 * in -> out: plans -> host time, warm starts, device memory, refused arguments, other lengths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_child.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/gpu/gpu_suites.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/problem_verify.h"
#include "tuner/verify/shape.h"
#include "tuner/verify/stopwatch.h"

static struct ft_problem *problem_of(const struct ft_request *request, uint64_t salt) {
  const struct ft_problem_options options = {.request = *request,
                                             .layout = FT_LAYOUT_BSHD,
                                             .seed = gpu_seed(salt),
                                             .keep_host = true,
                                             .want_lse = true};
  struct ft_problem *problem = NULL;
  gpu_assert_ok(ft_problem_make(&problem, gpu_lab()->session, &options));
  return problem;
}

static void run_and_verify(fatune_plan *plan, struct ft_problem *problem, int rows) {
  struct ft_comparison comparison;
  gpu_assert_ok(ft_problem_poison(problem, NULL));
  gpu_assert_ok(fatune_plan_run(plan, ft_problem_arguments(problem), NULL));
  gpu_assert_ok(ft_stream_wait(gpu_lab()->session, NULL));
  gpu_assert_ok(ft_problem_verify(problem, rows, gpu_lab()->threads, &comparison));
  ck_assert_msg(comparison.error_ratio <= 1, "%s", comparison.worst);
}

/* One plan serves all lengths, batches and head counts of its kernel class. */
START_TEST(one_plan_serves_other_lengths) {
  static const char *const runs[] = {
      "forward bf16 d64 hq4 hkv2 b2 nq1000 nk1000 causal", "forward bf16 d64 nq1 nk1 causal",
      "forward bf16 d64 hq6 hkv1 b3 nq77 nk1300 causal", "forward bf16 d64 hq2 nq500 nk3 causal"};
  const struct ft_request made_for = gpu_request(runs[0]);
  fatune_plan *const plan = gpu_plan(&made_for, NULL);
  for (uint64_t n = 0; n < sizeof runs / sizeof *runs; n++) {
    const struct ft_request request = gpu_request(runs[n]);
    struct ft_problem *const problem = problem_of(&request, 500 + n);
    run_and_verify(plan, problem, 1024);
    ft_problem_free(problem);
  }
  fatune_plan_free(plan);
}
END_TEST

/* ---- refusals ---- */

enum damage {
  NO_Q,
  CROOKED_K,
  NEGATIVE_STRIDE,
  OUTPUT_OVERLAP,
  HUGE_STRIDE,
  BAD_HEADS,
  NAN_SCALE,
  DROPOUT_UNASKED,
  MASK_UNASKED,
  IN_PLACE,
  DAMAGES
};

static void do_damage(fatune_arguments *arguments, enum damage damage, const fatune_mask *mask) {
  switch (damage) {
  case NO_Q: arguments->q.data = NULL; break;
  case CROOKED_K: arguments->k.data = (char *)arguments->k.data + 2; break;
  case NEGATIVE_STRIDE: arguments->v.stride_seq = -64; break;
  case OUTPUT_OVERLAP: arguments->o.stride_seq = 64; break;
  case HUGE_STRIDE: arguments->k.stride_seq = INT64_MAX / 8 * 8; break;
  case BAD_HEADS: arguments->heads_q = 5; break;
  case NAN_SCALE: arguments->scale = 0.0f / 0.0f; break;
  case DROPOUT_UNASKED: arguments->dropout = 0.1f; break;
  case MASK_UNASKED: arguments->mask = mask; break;
  case IN_PLACE: arguments->o = arguments->q; break;
  case DAMAGES: break;
  }
}

/* A refused call launches nothing and leaves no error behind in the context. */
START_TEST(bad_arguments_leave_the_context_alive) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const struct ft_request request = gpu_request("forward bf16 d64 hq4 hkv2 b2 nq200 nk300");
  fatune_plan *const plan = gpu_plan(&request, NULL);
  struct ft_problem *const problem = problem_of(&request, 510);
  const uint8_t block = 1;
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  options.blocks = &block;
  options.mask_rows = options.mask_cols = 512;
  options.batch = options.heads = 1;
  options.seqlen_q = 200;
  options.seqlen_k = 300;
  fatune_mask *mask = NULL;
  gpu_assert_ok(fatune_mask_make(&mask, gpu_lab()->session, &options, NULL));
  for (int damage = 0; damage < DAMAGES; damage++) {
    fatune_arguments arguments = *ft_problem_arguments(problem);
    do_damage(&arguments, (enum damage)damage, mask);
    const int status = fatune_plan_run(plan, &arguments, NULL);
    ck_assert_msg(status == FATUNE_E_ARGUMENT, "damage %d gives %d: %s", damage, status,
                  fatune_detail());
    gpu_assert_cuda(driver->context_synchronize());
  }
  run_and_verify(plan, problem, 1024);
  fatune_mask_free(mask);
  ft_problem_free(problem);
  fatune_plan_free(plan);
}
END_TEST

/* ---- memory ---- */

static size_t memory_left(void) {
  size_t available = 0, total = 0;
  gpu_assert_cuda(gpu_lab()->session->driver.memory_info(&available, &total));
  return available;
}

/* Others may use the GPU too, so a difference must show three times. */
START_TEST(long_sequences_take_no_memory) {
  enum { TRIES = 3 };
  const struct ft_request request = gpu_request("forward bf16 d64 hq16 nq65536 causal");
  struct ft_problem *const problem = problem_of(&request, 520);
  size_t taken = 1;
  for (int n = 0; n < TRIES && taken != 0; n++) {
    fatune_plan *const plan = gpu_plan(&request, NULL);
    const size_t before = memory_left();
    gpu_assert_ok(fatune_plan_run(plan, ft_problem_arguments(problem), NULL));
    gpu_assert_ok(ft_stream_wait(gpu_lab()->session, NULL));
    const size_t after = memory_left();
    taken = before > after ? before - after : 0;
    fatune_plan_free(plan);
  }
  printf("plan: a run over 65536 x 65536 takes %zu bytes of device memory\n", taken);
  ck_assert_uint_eq(taken, 0);

  size_t workspace = 1;
  fatune_plan *const plan = gpu_plan(&request, NULL);
  gpu_assert_ok(fatune_plan_workspace_size(plan, &workspace));
  ck_assert_uint_eq(workspace, 0);
  run_and_verify(plan, problem, 48);
  fatune_plan_free(plan);
  ft_problem_free(problem);
}
END_TEST

/* ---- time ---- */

static char small_request[] = "forward bf16 d128 hq8 nq512 causal";

START_TEST(a_run_costs_microseconds_of_host_time) {
  char output[1024];
  char *const nothing[] = {NULL};
  ck_assert_int_eq(gpu_child_run(output, sizeof output, "host-time", small_request, nothing), 0);
  gpu_judge_time("host time of fatune_plan_run", gpu_child_number(output, "run_us"), 3);
}
END_TEST

START_TEST(a_warm_plan_in_a_new_process_is_quick) {
  enum { TIMES = 5 };
  char output[1024];
  char *const nothing[] = {NULL};
  double least_us = 1e9;
  const struct ft_request request = gpu_request(small_request);
  fatune_plan_free(gpu_plan(&request, NULL)); /* the caches are warm from here on */
  for (int n = 0; n < TIMES; n++) {
    ck_assert_int_eq(gpu_child_run(output, sizeof output, "warm", small_request, nothing), 0);
    ck_assert_msg(strstr(output, "kernel from the cache") != NULL, "%s", output);
    const double us = gpu_child_number(output, "plan_us");
    if (us < least_us) least_us = us;
  }
  gpu_judge_time("plan from warm caches in a new process, best of 5", least_us, 3000);
}
END_TEST

Suite *make_gpu_plan_suite(void) {
  Suite *const suite = suite_create("gpu_plan");
  TCase *const tests = tcase_create("plan");
  tcase_add_test(tests, one_plan_serves_other_lengths);
  tcase_add_test(tests, bad_arguments_leave_the_context_alive);
  tcase_add_test(tests, long_sequences_take_no_memory);
  tcase_add_test(tests, a_run_costs_microseconds_of_host_time);
  tcase_add_test(tests, a_warm_plan_in_a_new_process_is_quick);
  suite_add_tcase(suite, tests);
  return suite;
}
