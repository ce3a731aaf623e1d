/* test_plan_backward.c: backward plans on the fake GPU, from request to launches.
 * in -> out: request -> plan -> the launches the fake driver saw; each driver call failing in turn.
 */
#include <stdio.h>
#include <string.h>

#include "generator/families/mma_backward.h"
#include "generator/status.h"
#include "generator/arguments.h"
#include "runtime/public.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/suites.h"

static void set_up(void) {
  use_fake_nvrtc();
}

static const char *const configs[] = {
    "mma_backward block_m=64 block_n=128 warps=8 stages=2 "
    "column_warps=1 query_parts=1 kv_in_regs=0 deferred_dq=1 dq_mode=1 "
    "ctas_per_sm=1",
    "mma_backward block_m=64 block_n=64 warps=8 stages=2 "
    "column_warps=1 query_parts=1 kv_in_regs=0 deferred_dq=0 dq_mode=1 "
    "ctas_per_sm=1",
    "mma_backward block_m=64 block_n=64 warps=8 stages=2 "
    "column_warps=1 query_parts=1 kv_in_regs=0 deferred_dq=0 dq_mode=2 "
    "ctas_per_sm=1"};

static fatune_plan *make_plan(fatune_session *session, const fatune_request *request,
                              const char *config) {
  fatune_plan *plan;
  const int status = config ? fatune_plan_make_with(&plan, session, request, config)
                            : fatune_plan_make(&plan, session, request);
  ck_assert_status(status, FATUNE_OK);
  return plan;
}

START_TEST(a_plan_launches_three_kernels) {
  const struct fake_lab lab = fake_lab_open();
  const fatune_request request =
      fake_request("backward bf16 d128 hq8 hkv2 b3 nq1000 nk500 causal deterministic");
  fatune_plan *const plan = make_plan(lab.session, &request, configs[_i]);
  struct ft_config config;
  struct ft_request inner;
  ck_assert_status(ft_config_parse(&config, fatune_plan_config(plan)), FT_OK);
  ck_assert_status(ft_request_from_public(&inner, &request), FT_OK);
  const struct ft_budget budget = ft_budget_of(&inner, &config, &lab.session->device.arch);

  const fatune_arguments arguments = fake_arguments(&request);
  int stream;
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  const int before = lab.cuda.calls(NULL);
  ck_assert_status(fatune_plan_run(plan, &arguments, &stream), FATUNE_OK);
  ck_assert_int_eq(lab.cuda.calls(NULL), before + 3); /* the launches and nothing else */
  ft_session_leave(lab.session);

  const struct fake_launch *const seen = lab.cuda.last_launch();
  const unsigned block_m = (unsigned)ft_config_block_m(&config);
  const unsigned block_n = (unsigned)ft_config_block_n(&config);
  const unsigned q_tiles = (1000 + block_m - 1) / block_m;
  const unsigned k_tiles = (500 + block_n - 1) / block_n;
  ck_assert_str_eq(seen->order, "pkc");
  ck_assert_uint_eq(seen->grids[0], q_tiles * 3 * 8);
  ck_assert_uint_eq(seen->grids[1], k_tiles * 3 * 2);
  ck_assert_uint_eq(seen->grids[2], q_tiles * 3 * 8);
  ck_assert_uint_eq(seen->threads[0], (unsigned)budget.threads);
  ck_assert_uint_eq(seen->threads[1], (unsigned)budget.threads);
  ck_assert_uint_eq(seen->threads[2], (unsigned)ft_mma_backward_budget(&budget)->dq_threads);
  ck_assert_uint_eq(seen->smem, (unsigned)ft_mma_backward_budget(&budget)->dq_smem);
  ck_assert_ptr_eq(seen->stream, &stream);
  struct ft_backward_params params;
  memcpy(&params, seen->params, sizeof params);
  ck_assert_uint_eq(params.dout.data, 0x5000);
  ck_assert_uint_eq(params.dv.data, 0x8000);
  ck_assert_int_eq(params.visibility.last_diagonal, -500);

  fatune_plan_free(plan);
  fake_lab_close(&lab);
}
END_TEST

/* A forward needs none; its arguments are checked all the same. */
START_TEST(a_bad_batch_needs_no_workspace_to_be_refused) {
  const struct fake_lab lab = fake_lab_open();
  const fatune_request request = fake_request("forward bf16 d64 hq4 nq512");
  fatune_plan *const plan = make_plan(lab.session, &request, NULL);
  fatune_arguments arguments = fake_arguments(&request);
  size_t bytes = 1;
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, &bytes), FATUNE_OK);
  ck_assert_uint_eq(bytes, 0);
  arguments.batch = -3;
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, &bytes), FATUNE_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(fatune_detail(), "arguments.batch is -3"));
  fatune_plan_free(plan);
  fake_lab_close(&lab);
}
END_TEST

START_TEST(the_workspace_is_asked_for) {
  const struct fake_lab lab = fake_lab_open();
  const fatune_request request = fake_request("backward bf16 d64 hq4 nq512");
  fatune_plan *const plan = make_plan(lab.session, &request, NULL);
  fatune_arguments arguments = fake_arguments(&request);
  size_t of_request, of_run;
  ck_assert_status(fatune_plan_workspace_size(plan, &of_request), FATUNE_OK);
  ck_assert_uint_ge(of_request, 512 * 4 * 2 * sizeof(float));
  ck_assert_uint_le(of_request, 512 * 4 * 4 * (64 + 11));
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, &of_run), FATUNE_OK);
  ck_assert_uint_eq(of_run, of_request);
  arguments.seqlen_q = 1024;
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, &of_run), FATUNE_OK);
  ck_assert_uint_le(of_run, 2 * of_request); /* each of its parts is rounded up to 256 bytes */
  ck_assert_uint_gt(of_run, 2 * of_request - 1024);
  ck_assert_status(fatune_plan_workspace_for(plan, NULL, &of_run), FATUNE_E_ARGUMENT);
  ck_assert_uint_eq(of_run, 0);
  ck_assert_status(fatune_plan_workspace_for(NULL, &arguments, &of_run), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, NULL), FATUNE_E_ARGUMENT);

  arguments.workspace = NULL;
  ck_assert_status(fatune_plan_run(plan, &arguments, NULL), FATUNE_E_ARGUMENT);
  ck_assert_detail("arguments.workspace is NULL");
  ck_assert_int_eq(lab.cuda.last_launch()->count, 0);
  fatune_plan_free(plan);
  fake_lab_close(&lab);
}
END_TEST

START_TEST(deterministic_has_no_atomic_adds) {
  const struct fake_lab lab = fake_lab_open();
  const fatune_request request = fake_request("backward bf16 d64 hq4 nq512 deterministic");
  fatune_plan *plan = make_plan(lab.session, &request, NULL);
  ck_assert_ptr_null(strstr(fatune_plan_config(plan), "dq_mode=0"));
  fatune_plan_free(plan);
  ck_assert_status(
      fatune_plan_make_with(&plan, lab.session, &request,
                            "mma_backward block_m=64 block_n=64 warps=8 stages=2 "
                            "column_warps=1 query_parts=1 kv_in_regs=0 deferred_dq=0 dq_mode=0 "
                            "ctas_per_sm=1"),
      FATUNE_E_ARGUMENT);
  ck_assert_detail("breaks rule deterministic");
  fake_lab_close(&lab);
}
END_TEST

/* ---- faults ---- */

/* Each of the calls that a backward makes more of than a forward. */
START_TEST(every_failing_call_is_noticed) {
  const struct fake_controls cuda = use_fake_cuda();
  static const char *const symbols[] = {"cuModuleGetFunction", "cuFuncSetAttribute",
                                        "cuLaunchKernel", "cuMemcpyHtoDAsync_v2"};
  for (int n = 0; n < 4; n++) {
    int failures = 0;
    for (;; failures++) {
      char failure[64];
      snprintf(failure, sizeof failure, "%s:%d:999", symbols[n], failures + 1);
      cuda.reset(failure);
      const int status = fake_program("backward bf16 d64 nq256 mask=128x128");
      if (!cuda.failed()[0]) break;
      ck_assert_msg(status != FATUNE_OK, "%s went unnoticed", failure);
      ck_assert_int_eq(cuda.live(), 0);
      ck_assert_int_eq(cuda.depth(), 0);
    }
    ck_assert_msg(failures >= 3, "%s was called %d times", symbols[n], failures);
  }
}
END_TEST

Suite *make_plan_backward_suite(void) {
  Suite *const suite = suite_create("plan_backward");
  TCase *const tests = tcase_create("plan");
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_plan_launches_three_kernels, 0, 3);
  tcase_add_test(tests, a_bad_batch_needs_no_workspace_to_be_refused);
  tcase_add_test(tests, the_workspace_is_asked_for);
  tcase_add_test(tests, deterministic_has_no_atomic_adds);
  tcase_add_test(tests, every_failing_call_is_noticed);
  suite_add_tcase(suite, tests);
  return suite;
}
