/* test_problem_backward.c: backward problems and their verdicts on the fake GPU, whose memory this
 * process can write. in -> out: right gradients and each kind of damage -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "generator/status.h"
#include "tests/problem_lab.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_explain.h"
#include "tuner/verify/problem_verify.h"

/* ---- a right kernel, on the CPU ---- */

static const fatune_tensor *output_of(const fatune_arguments *a, enum ft_gradient gradient) {
  return gradient == FT_GRADIENT_Q ? &a->dq : gradient == FT_GRADIENT_K ? &a->dk : &a->dv;
}

static uint16_t *row_of(const fatune_arguments *a, enum ft_gradient gradient, struct ft_row row) {
  const fatune_tensor *const t = output_of(a, gradient);
  return (uint16_t *)t->data + row.batch * t->stride_batch + row.i * t->stride_seq +
         row.head * t->stride_head;
}

/* Where a kernel would write; of the inputs as the problem has them on the host. */
static void write_gradients(const struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  const fatune_arguments *a = ft_problem_arguments(problem);
  struct ft_query_terms *terms;
  struct ft_gradient_row row[FT_GRADIENTS];
  struct ft_scorer scorer;
  ck_assert_status(ft_query_terms_make(&terms, &problem->host), FT_OK);
  ck_assert_status(ft_scorer_open(&scorer, &problem->host), FT_OK);
  for (int g = 0; g < FT_GRADIENTS; g++) {
    for (int64_t n = 0; n < ft_gradient_rows(r, (enum ft_gradient)g); n++) {
      const struct ft_row at = ft_gradient_row_at(r, (enum ft_gradient)g, n);
      if (g == FT_GRADIENT_Q)
        ft_query_gradient(&problem->host, &scorer, terms, at, &row[FT_GRADIENT_Q]);
      else
        ft_key_gradients(&problem->host, &scorer, terms, at, &row[FT_GRADIENT_K],
                         &row[FT_GRADIENT_V]);
      uint16_t *const to = row_of(a, (enum ft_gradient)g, at);
      for (int d = 0; d < ft_gradient_dim(r, (enum ft_gradient)g); d++)
        to[d] = ft_to_dtype(r->dtype, row[g].plain[d]);
    }
  }
  ft_scorer_close(&scorer);
  free(terms);
}

/* ---- tests ---- */

static const char *const requests[] = {
    "backward bf16 d64 nq33 nk65 b2 hq4 hkv2",
    "backward fp16 d72 dv40 nq40 nk23 b2 hq2 hkv1 causal",
    "backward bf16 d64 nq70 nk90 b2 hq2 hkv1 dropout causal=top-left",
    "backward fp16 d128 nq70 nk90 b2 hq2 hkv1 mask=16x32@0.5",
};
enum { REQUESTS = sizeof requests / sizeof requests[0], LAYOUTS = 3 };

START_TEST(right_gradients_pass_in_every_layout) {
  const struct fake_lab lab = fake_lab_open();
  struct ft_problem_options options =
      problem_options(requests[_i / LAYOUTS], (enum ft_layout)(_i % LAYOUTS));
  options.broadcast_mask = options.want_dlse = _i % 2;
  struct ft_problem *problem = problem_make(&lab, &options);
  ck_assert_wrong(problem, "not written");
  write_gradients(problem);
  const struct ft_comparison some = verdict(problem, 20), all = verdict(problem, 1 << 20);
  ck_assert_msg(some.error_ratio <= 0.5 && all.error_ratio <= 0.5, "seed %llu: %s",
                (unsigned long long)options.seed, all.worst);
  for (int g = 0; g < FT_GRADIENTS; g++) ck_assert_double_gt(all.gradients[g].error, 0);
  ck_assert_status(ft_problem_poison(problem, NULL), FT_OK);
  ck_assert_wrong(problem, "not written");
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

START_TEST(damage_is_named) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_PADDED);
  struct ft_problem *problem = problem_make(&lab, &options);
  const fatune_arguments *a = ft_problem_arguments(problem);
  ck_assert_status(ft_problem_reserve(problem, 1000), FT_OK);
  ck_assert_status(ft_problem_poison(problem, NULL), FT_OK);
  write_gradients(problem);
  ck_assert_double_le(verdict(problem, 50).error_ratio, 1);
  uint16_t *const dk = row_of(a, FT_GRADIENT_K, (struct ft_row){1, 1, 64});
  uint16_t *const dq = a->dq.data, *const dv = a->dv.data;

  uint16_t kept = dk[63];
  dk[63] = 0xFFFF;
  ck_assert_wrong(problem, "dK of batch 1 head 1 key 64");
  dk[63] = kept;
  kept = dk[64]; /* the gap behind the row */
  ck_assert_int_eq(kept, 0xFFFF);
  dk[64] = 0;
  ck_assert_wrong(problem, "1 elements into the gaps between the rows of dK");
  dk[64] = kept;
  kept = dq[-1];
  dq[-1] = 0;
  ck_assert_wrong(problem, "before the begin of dQ");
  dq[-1] = kept;
  const int64_t span = 2 * a->dv.stride_batch;
  kept = dv[span + 7];
  dv[span + 7] = 0;
  ck_assert_wrong(problem, "past the end of dV");
  dv[span + 7] = kept;
  dq[0] ^= 0x4000; /* the first and the last row are always compared */
  ck_assert_wrong(problem, "dQ[0] of batch 0 head 0 row 0");
  dq[0] ^= 0x4000;

  unsigned char *const work = a->workspace;
  const unsigned char past = work[1000], before = work[-1];
  work[1000] = 0;
  ck_assert_wrong(problem, "0 bytes past the end of the workspace");
  work[1000] = past;
  work[-1] = 0;
  ck_assert_wrong(problem, "before the begin of the workspace");
  work[-1] = before;
  ck_assert_double_le(verdict(problem, 50).error_ratio, 1);
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

/* O and LSE of more than the CPU gets through are a kernel's, and are copied to the host. */
START_TEST(a_large_problem_takes_its_forward_from_a_kernel) {
  setenv("FATUNE_FAKE_MS", "1000", 1);
  use_fake_nvrtc();
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options =
      problem_options("backward bf16 d16 nq13000", FT_LAYOUT_PADDED);
  struct ft_problem *problem = problem_make(&lab, &options);
  ck_assert_int_gt(lab.cuda.last_launch()->count, 0);
  const uint16_t *const o = problem->dense[FT_O];
  const fatune_arguments *const a = ft_problem_arguments(problem);
  for (int64_t i = 0; i < options.request.seqlen_q; i++)
    ck_assert_mem_eq(o + 16 * i, (const uint16_t *)a->o.data + i * a->o.stride_seq, 32);
  ft_problem_free(problem);
  bool failed = true;
  for (int call = 1; failed; call++) {
    char failure[32];
    struct ft_problem *none = NULL;
    snprintf(failure, sizeof failure, "*:%d:700", call);
    lab.cuda.reset(failure);
    const int status = ft_problem_make(&none, lab.session, &options);
    failed = lab.cuda.failed()[0] != '\0';
    ft_problem_free(none);
    ck_assert_msg(failed || status == FT_OK, "call %d: %d %s", call, status, ft_detail());
    ck_assert_int_eq(lab.cuda.live(), 0);
  }
  unsetenv("FATUNE_FAKE_MS");
  fatune_session_close(lab.session);
}
END_TEST

START_TEST(strides_of_gradients_are_their_own) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_PADDED);
  struct ft_problem *problem = problem_make(&lab, &options);
  const fatune_arguments *a = ft_problem_arguments(problem);
  ck_assert_int_ne(a->q.stride_head, a->dq.stride_head);
  ck_assert_int_ne(a->q.stride_seq, a->dq.stride_seq);
  ck_assert_int_ne(a->o.stride_head, a->dout.stride_head);
  ck_assert_int_ne(a->k.stride_batch, a->dk.stride_batch);
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

START_TEST(the_workspace_is_remade_and_poisoned) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_BSHD);
  struct ft_problem *problem = problem_make(&lab, &options);
  const fatune_arguments *a = ft_problem_arguments(problem);
  ck_assert_ptr_null(a->workspace);
  static const size_t sizes[] = {4096, 256, 70000, 0, 512};
  for (int n = 0; n < 5; n++) {
    ck_assert_status(ft_problem_reserve(problem, sizes[n]), FT_OK);
    ck_assert_int_eq(a->workspace != NULL, sizes[n] > 0);
    ck_assert_status(ft_problem_poison(problem, NULL), FT_OK);
    if (sizes[n] == 0) continue;
    ck_assert_uint_eq((uintptr_t)a->workspace % 256, 0);
    const unsigned char *const bytes = a->workspace;
    for (size_t byte = 0; byte < sizes[n]; byte++) ck_assert_int_eq(bytes[byte], 0xFF);
    ck_assert_int_ne(bytes[sizes[n]], 0xFF);
  }
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

/* O and LSE are those of the forward, rounded. */
START_TEST(the_inputs_are_what_a_forward_leaves) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[_i], FT_LAYOUT_PADDED);
  const struct ft_request *r = &options.request;
  struct ft_problem *problem = problem_make(&lab, &options);
  const fatune_arguments *a = ft_problem_arguments(problem);
  for (int64_t n = 0; n < ft_gradient_rows(r, FT_GRADIENT_Q); n++) {
    const struct ft_row row = ft_gradient_row_at(r, FT_GRADIENT_Q, n);
    const uint16_t *const o = (const uint16_t *)a->o.data + row.batch * a->o.stride_batch +
                              row.i * a->o.stride_seq + row.head * a->o.stride_head;
    double exact[256], lse;
    ft_reference_row(&problem->host, row, exact, &lse);
    for (int d = 0; d < r->head_dim_v; d++)
      ck_assert_uint_eq(o[d], ft_to_dtype(r->dtype, exact[d]));
    ck_assert(a->lse[n] == (float)lse);
  }
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

/* ---- runs by ft_problem_check ---- */

struct runner {
  struct ft_problem *problem;
  int runs;
  bool wavers; /* the second run differs in one bit */
};

static int run(void *payload, const fatune_arguments *arguments) {
  struct runner *const runner = payload;
  write_gradients(runner->problem);
  if (runner->runs++ > 0 && runner->wavers) ((uint16_t *)arguments->dv.data)[3] ^= 1;
  return FT_OK;
}

START_TEST(deterministic_requests_run_twice) {
  const struct fake_lab lab = fake_lab_open();
  for (int wavers = 0; wavers < 2; wavers++) {
    const struct ft_problem_options options =
        problem_options("backward bf16 d64 nq33 nk65 hq2 deterministic", FT_LAYOUT_BSHD);
    struct runner runner = {.problem = problem_make(&lab, &options), .wavers = wavers};
    const struct ft_problem_run how = {run, &runner, NULL, false};
    struct ft_comparison comparison;
    ck_assert_status(ft_problem_check(runner.problem, &how, 50, 1, &comparison), FT_OK);
    ck_assert_int_eq(runner.runs, 2);
    ck_assert_int_eq(comparison.error_ratio <= 1, !wavers);
    if (wavers) ck_assert_str_eq(comparison.worst, "1 elements of dV differ from run to run");
    ft_problem_free(runner.problem);
  }
  fake_lab_close(&lab);
}
END_TEST

START_TEST(others_run_once) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_BSHD);
  struct runner runner = {.problem = problem_make(&lab, &options)};
  const struct ft_problem_run how = {run, &runner, NULL, false};
  struct ft_comparison comparison;
  ck_assert_status(ft_problem_check(runner.problem, &how, 50, 1, &comparison), FT_OK);
  ck_assert_int_eq(runner.runs, 1);
  ft_problem_free(runner.problem);
  fake_lab_close(&lab);
}
END_TEST

/* ---- explanations ---- */

static void expect_explained(struct ft_problem *problem, const char *part) {
  struct ft_text text = FT_TEXT_INIT;
  verdict(problem, 1 << 20);
  ck_assert_status(ft_problem_explain(problem, run, NULL, &text), FT_OK);
  ck_assert_msg(text.data && strstr(text.data, part), "\"%s\" lacks \"%s\"", text.data, part);
  ft_text_free(&text);
}

START_TEST(what_is_wrong_is_told) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_PADDED);
  struct ft_problem *problem = problem_make(&lab, &options);
  const fatune_arguments *a = ft_problem_arguments(problem);
  expect_explained(problem, "dQ of batch 0 head 0 row 0 is NaN or was not written.");
  write_gradients(problem);
  expect_explained(problem, "The result is right.");
  for (int key = 32; key < 48; key++) /* a tile lost */
    memset(row_of(a, FT_GRADIENT_K, (struct ft_row){1, 0, key}) + 8, 0, 16);
  expect_explained(problem, "dQ: none of 264 rows checked is wrong by itself\n");
  expect_explained(problem, "dK: 16 of 260 rows checked are wrong, batch 1, head 0, "
                            "key 32 to 47, in columns 8 to 15\n");
  ((uint16_t *)a->dq.data)[-2] = 0;
  expect_explained(problem, "The kernel wrote 4 bytes before the begin of dQ.");
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

static int use(struct ft_problem *problem) {
  struct ft_comparison comparison;
  FT_TRY(ft_problem_reserve(problem, 5000));
  FT_TRY(ft_problem_poison(problem, NULL));
  return ft_problem_verify(problem, 10, 1, &comparison);
}

START_TEST(no_driver_failure_leaks) {
  const struct fake_lab lab = fake_lab_open();
  struct ft_problem_options options = problem_options(requests[3], FT_LAYOUT_PADDED);
  options.want_dlse = true;
  ck_assert_int_gt(problem_fail_each_call(&lab, &options, use), 30);
  fatune_session_close(lab.session);
}
END_TEST

Suite *make_problem_backward_suite(void) {
  Suite *const suite = suite_create("problem_backward");
  TCase *const tests = tcase_create("problem");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, right_gradients_pass_in_every_layout, 0, REQUESTS * LAYOUTS);
  tcase_add_test(tests, damage_is_named);
  tcase_add_test(tests, strides_of_gradients_are_their_own);
  tcase_add_test(tests, a_large_problem_takes_its_forward_from_a_kernel);
  tcase_add_test(tests, the_workspace_is_remade_and_poisoned);
  tcase_add_loop_test(tests, the_inputs_are_what_a_forward_leaves, 0, REQUESTS);
  tcase_add_test(tests, deterministic_requests_run_twice);
  tcase_add_test(tests, others_run_once);
  tcase_add_test(tests, what_is_wrong_is_told);
  tcase_add_test(tests, no_driver_failure_leaks);
  suite_add_tcase(suite, tests);
  return suite;
}
