/* test_plan_backward.c: backward plans on the fake GPU, from request to launches.
 * in -> out: request -> plan -> the launches the fake driver saw; each driver call failing in turn.
 */
#include <stdio.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tests/fake/use_fake.h"
#include "tests/suites.h"

static struct fake_controls cuda, nvrtc;

static void set_up(void) {
  cuda = use_fake_cuda();
  nvrtc = use_fake_nvrtc();
}

static fatune_session *open_session(void) {
  const fatune_session_options options = memory_only_options();
  fatune_session *session;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

static fatune_request request_of(const char *words) {
  fatune_request request;
  ck_assert_status(fatune_request_parse(&request, words), FATUNE_OK);
  return request;
}

/* Never followed: the fake runs no kernel. */
static fatune_arguments arguments_of(const fatune_request *r) {
  fatune_arguments a = FATUNE_ARGUMENTS_INIT;
  const int64_t d = r->head_dim, dv = r->head_dim_v, hq = r->heads_q, hkv = r->heads_kv;
  a.q = (fatune_tensor){(void *)0x1000, r->seqlen_q * hq * d, hq * d, d};
  a.k = (fatune_tensor){(void *)0x2000, r->seqlen_k * hkv * d, hkv * d, d};
  a.v = (fatune_tensor){(void *)0x3000, r->seqlen_k * hkv * dv, hkv * dv, dv};
  a.o = a.dout = (fatune_tensor){(void *)0x4000, r->seqlen_q * hq * dv, hq * dv, dv};
  a.dq = a.q, a.dk = a.k, a.dv = a.v;
  a.dout.data = (void *)0x5000;
  a.dq.data = (void *)0x6000;
  a.dk.data = (void *)0x7000;
  a.dv.data = (void *)0x8000;
  a.lse = (void *)0x9000;
  a.workspace = (void *)0x10000;
  return a;
}

static const char *const configs[] = {NULL, /* the default */
                                      "mma_backward block_m=64 block_n=64 warps=8 stages=2 "
                                      "column_warps=1 parts=1 kv_in_regs=0 late_dq=0 dq=1 "
                                      "ctas_per_sm=1",
                                      "mma_backward block_m=64 block_n=64 warps=8 stages=2 "
                                      "column_warps=1 parts=1 kv_in_regs=0 late_dq=0 dq=2 "
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
  fatune_session *const session = open_session();
  const fatune_request request =
      request_of("backward bf16 d128 hq8 hkv2 b3 nq1000 nk500 causal deterministic");
  fatune_plan *const plan = make_plan(session, &request, configs[_i]);
  struct ft_config config;
  struct ft_request inner;
  ck_assert_status(ft_config_parse(&config, fatune_plan_config(plan)), FT_OK);
  ck_assert_status(ft_request_from_public(&inner, &request), FT_OK);
  const struct ft_budget budget = ft_budget_of(&inner, &config, &session->device.arch);

  const fatune_arguments arguments = arguments_of(&request);
  int stream;
  ck_assert_status(ft_session_enter(session), FT_OK);
  const int before = cuda.calls(NULL);
  ck_assert_status(fatune_plan_run(plan, &arguments, &stream), FATUNE_OK);
  ck_assert_int_eq(cuda.calls(NULL), before + 3); /* the launches and nothing else */
  ft_session_leave(session);

  const struct fake_launch *const seen = cuda.last_launch();
  const unsigned q_tiles = (1000 + (unsigned)config.block_m - 1) / (unsigned)config.block_m;
  const unsigned k_tiles = (500 + (unsigned)config.block_n - 1) / (unsigned)config.block_n;
  ck_assert_str_eq(seen->order, "pkc");
  ck_assert_uint_eq(seen->grids[0], q_tiles * 3 * 8);
  ck_assert_uint_eq(seen->grids[1], k_tiles * 3 * 2);
  ck_assert_uint_eq(seen->grids[2], q_tiles * 3 * 8);
  ck_assert_uint_eq(seen->threads[0], (unsigned)budget.threads);
  ck_assert_uint_eq(seen->threads[1], (unsigned)budget.threads);
  ck_assert_uint_eq(seen->threads[2], (unsigned)budget.dq_threads);
  ck_assert_uint_eq(seen->smem, (unsigned)budget.dq_smem);
  ck_assert_ptr_eq(seen->stream, &stream);
  struct ft_backward_params params;
  memcpy(&params, seen->params, sizeof params);
  ck_assert_uint_eq(params.dout, 0x5000);
  ck_assert_uint_eq(params.dv, 0x8000);
  ck_assert_int_eq(params.causal_shift, -500);

  fatune_plan_free(plan);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.live(), 0);
  ck_assert_int_eq(cuda.depth(), 0);
}
END_TEST

START_TEST(the_workspace_is_asked_for) {
  fatune_session *const session = open_session();
  const fatune_request request = request_of("backward bf16 d64 hq4 nq512");
  fatune_plan *const plan = make_plan(session, &request, NULL);
  fatune_arguments arguments = arguments_of(&request);
  size_t of_request, of_run;
  ck_assert_status(fatune_plan_workspace_size(plan, &of_request), FATUNE_OK);
  ck_assert_uint_ge(of_request, 512 * 4 * 2 * sizeof(float));
  ck_assert_uint_le(of_request, 512 * 4 * 4 * (64 + 11));
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, &of_run), FATUNE_OK);
  ck_assert_uint_eq(of_run, of_request);
  arguments.seqlen_q = 1024;
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, &of_run), FATUNE_OK);
  ck_assert_uint_eq(of_run, 2 * of_request);
  ck_assert_status(fatune_plan_workspace_for(plan, NULL, &of_run), FATUNE_E_ARGUMENT);
  ck_assert_uint_eq(of_run, 0);
  ck_assert_status(fatune_plan_workspace_for(NULL, &arguments, &of_run), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, NULL), FATUNE_E_ARGUMENT);

  arguments.workspace = NULL;
  ck_assert_status(fatune_plan_run(plan, &arguments, NULL), FATUNE_E_ARGUMENT);
  ck_assert_detail("arguments.workspace is NULL");
  ck_assert_int_eq(cuda.last_launch()->count, 0);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

START_TEST(deterministic_has_no_atomic_adds) {
  fatune_session *const session = open_session();
  const fatune_request request = request_of("backward bf16 d64 hq4 nq512 deterministic");
  fatune_plan *plan = make_plan(session, &request, NULL);
  ck_assert_ptr_null(strstr(fatune_plan_config(plan), "dq=0"));
  fatune_plan_free(plan);
  ck_assert_status(fatune_plan_make_with(&plan, session, &request,
                                         "mma_backward block_m=64 block_n=64 warps=8 stages=2 "
                                         "column_warps=1 parts=1 kv_in_regs=0 late_dq=0 dq=0 "
                                         "ctas_per_sm=1"),
                   FATUNE_E_ARGUMENT);
  ck_assert_detail("breaks rule deterministic");
  fatune_session_close(session);
}
END_TEST

/* ---- faults ---- */

/* From open to close; the first failure ends it. */
static int whole_program(void) {
  static const uint8_t bitmap[4] = {1, 0, 0, 1};
  const fatune_session_options options = memory_only_options();
  const fatune_request request = request_of("backward bf16 d64 nq256 mask=128x128");
  fatune_mask_options mask_options = FATUNE_MASK_OPTIONS_INIT;
  mask_options.blocks = bitmap;
  mask_options.mask_rows = mask_options.mask_cols = 128;
  mask_options.batch = mask_options.heads = 1;
  mask_options.seqlen_q = mask_options.seqlen_k = 256;
  fatune_arguments arguments = arguments_of(&request);
  fatune_session *session = NULL;
  fatune_plan *plan = NULL;
  fatune_mask *mask = NULL;
  bool entered = false;
  int status;
  FT_CHECK(fatune_session_open(&session, &options));
  FT_CHECK(fatune_plan_make(&plan, session, &request));
  FT_CHECK(fatune_mask_make(&mask, session, &mask_options, NULL));
  FT_CHECK(ft_session_enter(session));
  entered = true;
  arguments.mask = mask;
  FT_CHECK(fatune_plan_run(plan, &arguments, NULL));

done:
  if (entered) ft_session_leave(session);
  fatune_mask_free(mask);
  fatune_plan_free(plan);
  fatune_session_close(session);
  return status;
}

/* Each of the calls that a backward makes more of than a forward. */
START_TEST(every_failing_call_is_noticed) {
  static const char *const symbols[] = {"cuModuleGetFunction", "cuFuncSetAttribute",
                                        "cuLaunchKernel", "cuMemcpyHtoDAsync_v2"};
  for (int n = 0; n < 4; n++) {
    int failures = 0;
    for (;; failures++) {
      char failure[64];
      snprintf(failure, sizeof failure, "%s:%d:999", symbols[n], failures + 1);
      cuda.reset(failure);
      const int status = whole_program();
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
  tcase_add_test(tests, the_workspace_is_asked_for);
  tcase_add_test(tests, deterministic_has_no_atomic_adds);
  tcase_add_test(tests, every_failing_call_is_noticed);
  suite_add_tcase(suite, tests);
  return suite;
}
