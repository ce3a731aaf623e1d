/* test_gradients.c: the yardstick of the backward: float64 gradients against finite differences of
 * the float64 forward, allowances, verdicts.
 * in -> out: random problems (seed printed), gradients right and wrong -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/family.h"
#include "generator/status.h"
#include "tests/gradient_lab.h"
#include "tuner/verify/captured_answers.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"

/* ---- finite differences ---- */

/* What is differentiated: dO . O + dLSE . LSE over all rows, in float64. */
static double loss_of(const struct ft_host_problem *problem) {
  const struct ft_request *r = &problem->request;
  double loss = 0;
  for (int64_t n = 0; n < ft_gradient_rows(r, FT_GRADIENT_Q); n++) {
    const struct ft_row row = ft_gradient_row_at(r, FT_GRADIENT_Q, n);
    const int64_t place =
        ((row.batch * r->seqlen_q + row.i) * r->heads_q + row.head) * r->head_dim_v;
    double o[256], lse;
    ft_reference_row(problem, row, o, &lse);
    for (int d = 0; d < r->head_dim_v; d++)
      loss += ft_number(r->dtype, problem->dout, place + d) * o[d];
    if (isfinite(lse)) loss += (double)problem->dlse[n] * lse;
  }
  return loss;
}

static double slope(const struct gradient_sample *sample, uint16_t *element, double step) {
  const enum ft_dtype dtype = sample->problem.request.dtype;
  const uint16_t kept = *element;
  const double at = ft_from_dtype(dtype, kept);
  *element = ft_to_dtype(dtype, at + step);
  ck_assert_double_eq(ft_from_dtype(dtype, *element), at + step);
  const double above = loss_of(&sample->problem);
  *element = ft_to_dtype(dtype, at - step);
  const double below = loss_of(&sample->problem);
  *element = kept;
  return (above - below) / (2 * step);
}

/* Of the fourth order: two steps, extrapolated (Richardson). */
static double difference(const struct gradient_sample *sample, uint16_t *element) {
  const double step = 0x1p-6;
  return (4 * slope(sample, element, step) - slope(sample, element, 2 * step)) / 3;
}

/* The terms without O and LSE having been rounded. */
static struct ft_query_terms *exact_terms(const struct gradient_sample *sample) {
  const struct ft_request *r = &sample->problem.request;
  struct ft_query_terms *terms;
  ck_assert_int_eq(ft_query_terms_make(&terms, &sample->problem), FT_OK);
  for (int64_t n = 0; n < ft_gradient_rows(r, FT_GRADIENT_Q); n++) {
    const struct ft_row row = ft_gradient_row_at(r, FT_GRADIENT_Q, n);
    const uint16_t *dout =
        sample->dout + ((row.batch * r->seqlen_q + row.i) * r->heads_q + row.head) * r->head_dim_v;
    double o[256];
    ft_reference_row(&sample->problem, row, o, &terms[n].lse);
    terms[n].delta = -(double)sample->dlse[n];
    for (int d = 0; d < r->head_dim_v; d++)
      terms[n].delta += ft_from_dtype(r->dtype, dout[d]) * o[d];
  }
  return terms;
}

static const char *const small_requests[] = {
    "backward bf16 d16 nq7 nk9 hq2 b2",
    "backward fp16 d24 dv40 nq9 nk6 hq4 hkv2",
    "backward bf16 d16 nq12 nk12 hq3 hkv1 causal",
    "backward fp16 d32 nq11 nk5 hq2 causal",
    "backward bf16 d16 nq5 nk13 hq2 b2 causal=top-left",
    "backward fp16 d16 nq10 nk20 hq2 dropout",
    "backward bf16 d40 dv16 nq9 nk8 hq4 hkv1 dropout causal",
    "backward fp16 d16 nq40 nk50 hq2 mask=16x16@0.5",
    "backward bf16 d16 nq50 nk40 hq2 hkv1 b2 mask=16x32@0.4 causal dropout",
    "backward fp16 d16 nq12 nk9 hq2 window@2,1",
    "backward bf16 d16 nq10 nk14 hq2 hkv1 causal window=top-left@3,-1 dropout",
    "backward bf16 d16 nq6 nk6 hq2 causal=top-left window@0,0",
    "backward bf16 d16 nq3 nk1 hq2"};
enum { SMALL = sizeof small_requests / sizeof *small_requests };

/* The gradient of one element, from its row. */
static double gradient_of(const struct gradient_sample *sample, const struct ft_query_terms *terms,
                          enum ft_gradient gradient, struct ft_row row, int column,
                          double *yardstick) {
  static struct ft_gradient_row of[FT_GRADIENTS];
  struct ft_scorer scorer;
  ck_assert_int_eq(ft_scorer_open(&scorer, &sample->problem), FT_OK);
  if (gradient == FT_GRADIENT_Q)
    ft_query_gradient(&sample->problem, &scorer, terms, row, &of[FT_GRADIENT_Q]);
  else
    ft_key_gradients(&sample->problem, &scorer, terms, row, &of[FT_GRADIENT_K], &of[FT_GRADIENT_V]);
  ft_scorer_close(&scorer);
  *yardstick = of[gradient].yardstick;
  return of[gradient].exact[column];
}

static void compare_with_slopes(const struct gradient_sample *sample) {
  enum { ELEMENTS = 12 };
  const struct ft_request *r = &sample->problem.request;
  uint16_t *const tensors[FT_GRADIENTS] = {sample->q, sample->k, sample->v};
  struct ft_query_terms *const terms = exact_terms(sample);
  uint64_t state = sample->seed ^ 77;
  for (int n = 0; n < FT_GRADIENTS * ELEMENTS; n++) {
    const enum ft_gradient gradient = (enum ft_gradient)(n % FT_GRADIENTS);
    const int dim = ft_gradient_dim(r, gradient);
    const int64_t rows = ft_gradient_rows(r, gradient);
    const struct ft_row row =
        ft_gradient_row_at(r, gradient, (int64_t)(ft_random_next(&state) % (uint64_t)rows));
    const int column = (int)(ft_random_next(&state) % (uint64_t)dim);
    const int64_t length = gradient == FT_GRADIENT_Q ? r->seqlen_q : r->seqlen_k;
    const int heads = gradient == FT_GRADIENT_Q ? r->heads_q : r->heads_kv;
    uint16_t *const element =
        tensors[gradient] + ((row.batch * length + row.i) * heads + row.head) * dim + column;
    double yardstick;
    const double is = gradient_of(sample, terms, gradient, row, column, &yardstick);
    const double should = difference(sample, element);
    /* The rest of the extrapolation is of the fourth power of the step; rounding of the loss. */
    ck_assert_msg(fabs(is - should) <= 1e-6 * yardstick + 1e-10,
                  "seed %llu: %s[%d] of batch %lld head %d row %lld is %.10g, its slope %.10g",
                  (unsigned long long)sample->seed, ft_gradient_name(gradient), column,
                  (long long)row.batch, row.head, (long long)row.i, is, should);
  }
  free(terms);
}

START_TEST(gradients_are_the_slopes_of_the_forward) {
  struct gradient_sample sample = gradient_sample_of(small_requests[_i]);
  compare_with_slopes(&sample);
  gradient_sample_free(&sample);
}
END_TEST

static const struct {
  const char *request, *score;
} scored[] = {
    {"backward bf16 d16 nq9 nk11 hq4 hkv2 b2",
     "local cap = scalar('cap')\nscore = cap * tanh(s / cap)\nvisible = i % 3 ~= j % 2"},
    {"backward fp16 d16 nq7 nk9 hq2 causal dropout",
     "local t = tensor('t', 'fp32', heads, nk)\nscore = s * sigmoid(s + t(h, j)) - 0.1 * i"},
    {"backward bf16 d24 nq6 nk12 hq2 hkv1", "score = where(j > i, exp(s / 2), -inf)"}};

/* Gives the sample a score function, whose scalars are 0.75 and whose tensors 0.5 everywhere. */
static void give_score(struct gradient_sample *sample, const struct ft_known_score *known) {
  static float entries[64] = {0.5F, -0.25F, 0.75F};
  const struct ft_request *const r = &sample->problem.request;
  struct ft_score_inputs *const inputs = &sample->problem.score_inputs;
  inputs->scalars[0] = 0.75;
  inputs->tensors[0] = (struct ft_captured){
      .data = entries, .extents = {r->heads_q, r->seqlen_k}, .strides = {r->seqlen_k, 1}};
  inputs->symbols[FT_SYMBOL_NQ] = (double)r->seqlen_q;
  inputs->symbols[FT_SYMBOL_NK] = (double)r->seqlen_k;
  sample->problem.score = known;
  gradient_sample_forward(sample);
}

/* The loss with one number of what is captured a step further. */
static double loss_beside(struct gradient_sample *sample, float *entry, double step) {
  const struct ft_score_inputs kept = sample->problem.score_inputs;
  const float at = entry != NULL ? *entry : 0;
  if (entry != NULL) *entry = at + (float)step;
  if (entry == NULL) sample->problem.score_inputs.scalars[0] += step;
  const double loss = loss_of(&sample->problem);
  if (entry != NULL) *entry = at;
  sample->problem.score_inputs = kept;
  return loss;
}

static void compare_captured(struct gradient_sample *sample) {
  const struct ft_known_score *const known = sample->problem.score;
  struct ft_captured_answers *answers;
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit)
    if (known->gradients[bit].exists) sample->problem.request.score_gradients |= (int64_t)1 << bit;
  ck_assert_int_eq(ft_captured_answers_make(&answers, &sample->problem), FT_OK);
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    const struct ft_captured_answer *const of = &answers->of[bit];
    for (int64_t n = 0; n < of->count && n < 12; ++n) {
      const double step = 0x1p-8;
      float *const entry = bit < FT_SCORE_TENSORS
                               ? (float *)sample->problem.score_inputs.tensors[bit].data + n
                               : NULL;
      const double near = loss_beside(sample, entry, step) - loss_beside(sample, entry, -step);
      const double far =
          loss_beside(sample, entry, 2 * step) - loss_beside(sample, entry, -2 * step);
      const double should = (4 * near / (2 * step) - far / (4 * step)) / 3;
      /* O and LSE, which the answer is a function of, have been rounded. */
      ck_assert_msg(fabs(of->exact[n] - should) <= 0x1p-8 * sqrt(of->square[n]) + 1e-10,
                    "seed %llu: %s[%lld] is %.10g, its slope %.10g",
                    (unsigned long long)sample->seed, known->gradients[bit].name, (long long)n,
                    of->exact[n], should);
    }
  }
  ft_captured_answers_free(answers);
}

START_TEST(scores_are_differentiated) {
  struct gradient_score score;
  gradient_score_open(&score, scored[_i].score);
  struct gradient_sample sample = gradient_sample_of(scored[_i].request);
  give_score(&sample, score.known);
  compare_with_slopes(&sample);
  compare_captured(&sample);
  gradient_sample_free(&sample);
  gradient_score_close(&score);
}
END_TEST

/* ---- verdicts ---- */

static const char *const requests[] = {
    "backward bf16 d64 nq70 nk90 b2 hq4 hkv2",
    "backward fp16 d72 dv40 nq40 nk23 b2 hq2 hkv1 causal",
    "backward bf16 d64 nq70 nk90 b2 hq2 hkv1 dropout causal=top-left",
    "backward fp16 d128 nq70 nk90 hq2 hkv1 mask=16x32@0.5 dropout"};
enum { REQUESTS = sizeof requests / sizeof *requests };

START_TEST(the_plain_computation_is_right) {
  struct gradient_sample sample = gradient_sample_of(requests[_i]);
  uint16_t *values[FT_GRADIENTS];
  gradients_plain(&sample.problem, values);
  const struct ft_comparison verdict = gradients_compare(&sample, values);
  ck_assert_msg(verdict.error_ratio <= 0.5, "seed %llu: %g: %s", (unsigned long long)sample.seed,
                verdict.error_ratio, verdict.worst);
  for (int g = 0; g < FT_GRADIENTS; g++) ck_assert_double_gt(verdict.gradients[g].error, 0);
  gradients_free(values);
  gradient_sample_free(&sample);
}
END_TEST

enum mistake {
  OTHER_SCALE,
  NO_DLSE,
  OTHER_SEED,
  LSE_OFF,
  ROW_ENLARGED,
  QUERY_LOST,
  O_OF_OTHER_ROWS,
  ALIGNED_OTHERWISE,
  MISTAKES
};

static void forget_row(uint16_t *tensor, int64_t row, int64_t width) {
  memset(tensor + row * width, 0, (size_t)width * sizeof *tensor);
}

/* Gradients of something a little different are wrong. */
START_TEST(mistakes_are_seen) {
  struct gradient_sample sample =
      gradient_sample_of("backward bf16 d64 nq70 nk90 b2 hq4 hkv2 causal dropout");
  struct ft_host_problem other = sample.problem;
  const struct ft_request *r = &other.request;
  const int64_t queries = ft_gradient_rows(r, FT_GRADIENT_Q);
  float *const lse = malloc((size_t)queries * sizeof *lse);
  uint16_t *const dout = malloc((size_t)queries * 64 * sizeof *dout);
  uint16_t *const o = malloc((size_t)queries * 64 * sizeof *o);
  uint16_t *values[FT_GRADIENTS], *right[FT_GRADIENTS];
  memcpy(lse, sample.lse, (size_t)queries * sizeof *lse);
  memcpy(dout, sample.dout, (size_t)queries * 64 * sizeof *dout);
  memcpy(o, sample.o, (size_t)queries * 64 * sizeof *o);
  switch ((enum mistake)_i) {
  case OTHER_SCALE: other.scale *= 1.02; break;
  case NO_DLSE: other.dlse = NULL; break;
  case OTHER_SEED: other.seed++; break;
  case LSE_OFF: lse[100] += 0.1F; break;
  case QUERY_LOST: forget_row(dout, 65 * 4 + 1, 64); break;
  case O_OF_OTHER_ROWS: memmove(o + 20 * 4 * 64, o + 21 * 4 * 64, 40 * 4 * 64 * sizeof *o); break;
  case ALIGNED_OTHERWISE: other.request.causal = FT_CAUSAL_TOP_LEFT; break;
  default: break;
  }
  other.lse = lse;
  other.dout = dout;
  other.o = o;
  gradients_plain(&other, values);
  gradients_plain(&sample.problem, right);
  if (_i == ROW_ENLARGED) {
    for (int d = 0; d < 64; d++) {
      const double all = ft_from_dtype(FT_BF16, right[FT_GRADIENT_Q][69 * 64 + d]);
      values[FT_GRADIENT_Q][69 * 64 + d] = ft_to_dtype(FT_BF16, all * (1 + 0.08));
    }
  }
  const struct ft_comparison verdict = gradients_compare(&sample, values);
  ck_assert_msg(verdict.error_ratio > 1, "seed %llu: mistake %d passes with %g",
                (unsigned long long)sample.seed, _i, verdict.error_ratio);
  gradients_free(values);
  gradients_free(right);
  free(lse);
  free(dout);
  free(o);
  gradient_sample_free(&sample);
}
END_TEST

/* Queries 0 .. 19 see nothing, nor does any query see keys of column blocks that are off. */
START_TEST(nothing_seen_is_exactly_zero) {
  struct gradient_sample sample =
      gradient_sample_of("backward fp16 d32 nq40 nk20 hq2 hkv1 causal mask=16x16@0.99");
  uint16_t *values[FT_GRADIENTS];
  memset(sample.blocks, 1, 2 * 3 * 2);
  for (int line = 0; line < 2 * 3; line++) sample.blocks[line * 2 + 1] = 0; /* keys 16 .. 19 */
  gradient_sample_forward(&sample);
  gradients_plain(&sample.problem, values);
  for (int n = 0; n < 20 * 32; n++) ck_assert_uint_eq(values[FT_GRADIENT_Q][n] & 0x7FFF, 0);
  for (int n = 16 * 32; n < 20 * 32; n++) {
    ck_assert_uint_eq(values[FT_GRADIENT_K][n] & 0x7FFF, 0);
    ck_assert_uint_eq(values[FT_GRADIENT_V][n] & 0x7FFF, 0);
  }
  ck_assert_double_le(gradients_compare(&sample, values).error_ratio, 0.5);
  values[FT_GRADIENT_Q][5] = 1; /* the smallest number there is */
  const struct ft_comparison query = gradients_compare(&sample, values);
  ck_assert_msg(isinf(query.error_ratio) && strstr(query.worst, "dQ[5] of batch 0 head 0 row 0"),
                "%s", query.worst);
  values[FT_GRADIENT_Q][5] = 0;
  values[FT_GRADIENT_V][16 * 32] = 0x7E00; /* NaN */
  const struct ft_comparison key = gradients_compare(&sample, values);
  ck_assert_msg(isinf(key.error_ratio) && strstr(key.worst, "dV[0] of batch 0 head 0 key 16"), "%s",
                key.worst);
  gradients_free(values);
  gradient_sample_free(&sample);
}
END_TEST

/* One key: P = 1 and dS = 0 but for rounding, by LSE and by the order of sums. */
START_TEST(what_cancels_is_allowed_its_rounding) {
  struct gradient_sample sample =
      gradient_sample_of(_i ? "backward fp16 d64 nq30 nk1 hq2" : "backward bf16 d64 nq30 nk1 hq2");
  const struct ft_request *r = &sample.problem.request;
  uint16_t *values[FT_GRADIENTS];
  for (int n = 0; n < 60; n++) sample.dlse[n] = 0;
  gradients_plain(&sample.problem, values);
  ck_assert_double_le(gradients_compare(&sample, values).error_ratio, 1);
  for (int n = 0; n < 30 * 2 * 64; n++) /* an error of fp32 */
    values[FT_GRADIENT_Q][n] = ft_to_dtype(r->dtype, 3e-7);
  ck_assert_double_le(gradients_compare(&sample, values).error_ratio, 1);
  values[FT_GRADIENT_Q][7] = ft_to_dtype(r->dtype, 3e-4);
  ck_assert_double_gt(gradients_compare(&sample, values).error_ratio, 1);
  gradients_free(values);
  gradient_sample_free(&sample);
}
END_TEST

Suite *make_gradients_suite(void) {
  Suite *const suite = suite_create("gradients");
  TCase *const tests = tcase_create("gradients");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, gradients_are_the_slopes_of_the_forward, 0, SMALL);
  tcase_add_loop_test(tests, scores_are_differentiated, 0, FT_COUNT(scored));
  tcase_add_loop_test(tests, the_plain_computation_is_right, 0, REQUESTS);
  tcase_add_loop_test(tests, mistakes_are_seen, 0, MISTAKES);
  tcase_add_test(tests, nothing_seen_is_exactly_zero);
  tcase_add_loop_test(tests, what_cancels_is_allowed_its_rounding, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
