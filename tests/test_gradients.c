/* test_gradients.c: the yardstick of the backward: float64 gradients against finite differences of
 * the float64 forward, allowances, verdicts.
 * in -> out: random problems (seed printed), gradients right and wrong -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/family.h"
#include "generator/score/registry.h"
#include "generator/status.h"
#include "tests/fresh_seed.h"
#include "tuner/verify/captured_answers.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/gradient_answers.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"

/* ---- a random problem ---- */

struct sample {
  struct ft_host_problem problem;
  uint16_t *q, *k, *v, *o, *dout;
  float *lse, *dlse;
  uint8_t *blocks;
  uint64_t seed;
};

/* Multiples of 2^-6 below 1: a step of 2^-6 or 2^-5 is exact in both formats. */
static uint16_t *random_tensor(enum ft_dtype dtype, int64_t count, uint64_t *state) {
  uint16_t *data = malloc((size_t)count * sizeof *data);
  ck_assert_ptr_nonnull(data);
  for (int64_t n = 0; n < count; n++)
    data[n] = ft_to_dtype(dtype, ((double)(ft_random_next(state) % 125) - 62) / 64);
  return data;
}

/* O and LSE as the forward in float64 leaves them, rounded. */
static void run_forward(struct sample *sample) {
  const struct ft_request *r = &sample->problem.request;
  for (int64_t n = 0; n < ft_gradient_rows(r, FT_GRADIENT_Q); n++) {
    const struct ft_row row = ft_gradient_row_at(r, FT_GRADIENT_Q, n);
    double o[256], lse;
    ft_reference_row(&sample->problem, row, o, &lse);
    uint16_t *const to =
        sample->o + ((row.batch * r->seqlen_q + row.i) * r->heads_q + row.head) * r->head_dim_v;
    for (int d = 0; d < r->head_dim_v; d++) to[d] = ft_to_dtype(r->dtype, o[d]);
    sample->lse[n] = (float)lse;
  }
}

static struct sample sample_of(const char *text) {
  struct sample sample = {.seed = fresh_seed()};
  struct ft_request request;
  uint64_t state = sample.seed;
  ck_assert_msg(ft_request_parse(&request, text) == FT_OK, "%s", ft_detail());
  const int64_t queries = ft_gradient_rows(&request, FT_GRADIENT_Q);
  const int64_t keys = ft_gradient_rows(&request, FT_GRADIENT_K);
  sample.q = random_tensor(request.dtype, queries * request.head_dim, &state);
  sample.k = random_tensor(request.dtype, keys * request.head_dim, &state);
  sample.v = random_tensor(request.dtype, keys * request.head_dim_v, &state);
  sample.o = random_tensor(request.dtype, queries * request.head_dim_v, &state);
  sample.dout = random_tensor(request.dtype, queries * request.head_dim_v, &state);
  sample.lse = malloc((size_t)queries * sizeof(float));
  sample.dlse = malloc((size_t)queries * sizeof(float));
  ck_assert(sample.lse && sample.dlse);
  for (int64_t n = 0; n < queries; n++)
    sample.dlse[n] = (float)(ft_random_next(&state) % 129) / 64 - 1;
  if (request.mask_rows > 0)
    ck_assert_int_eq(
        ft_random_blocks(&sample.blocks, &request, request.batch, request.heads_q, ~sample.seed),
        FT_OK);
  sample.problem = (struct ft_host_problem){.request = request,
                                            .q = sample.q,
                                            .k = sample.k,
                                            .v = sample.v,
                                            .blocks = sample.blocks,
                                            .mask_batch = (int)request.batch,
                                            .mask_heads = request.heads_q,
                                            .o = sample.o,
                                            .dout = sample.dout,
                                            .lse = sample.lse,
                                            .dlse = sample.dlse,
                                            .scale = 1 / sqrt(request.head_dim),
                                            .dropout = request.dropout ? 0.3 : 0,
                                            .seed = ft_random_next(&state),
                                            .offset = ft_random_next(&state)};
  run_forward(&sample);
  return sample;
}

static void sample_free(struct sample *sample) {
  free(sample->q);
  free(sample->k);
  free(sample->v);
  free(sample->o);
  free(sample->dout);
  free(sample->lse);
  free(sample->dlse);
  free(sample->blocks);
}

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

static double slope(const struct sample *sample, uint16_t *element, double step) {
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
static double difference(const struct sample *sample, uint16_t *element) {
  const double step = 0x1p-6;
  return (4 * slope(sample, element, step) - slope(sample, element, 2 * step)) / 3;
}

/* The terms without O and LSE having been rounded. */
static struct ft_query_terms *exact_terms(const struct sample *sample) {
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
static double gradient_of(const struct sample *sample, const struct ft_query_terms *terms,
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

static void compare_with_slopes(const struct sample *sample) {
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
  struct sample sample = sample_of(small_requests[_i]);
  compare_with_slopes(&sample);
  sample_free(&sample);
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
static void give_score(struct sample *sample, const struct ft_known_score *known) {
  static float entries[64] = {0.5F, -0.25F, 0.75F};
  const struct ft_request *const r = &sample->problem.request;
  struct ft_score_inputs *const inputs = &sample->problem.score_inputs;
  inputs->scalars[0] = 0.75;
  inputs->tensors[0] = (struct ft_captured){
      .data = entries, .extents = {r->heads_q, r->seqlen_k}, .strides = {r->seqlen_k, 1}};
  inputs->symbols[FT_SYMBOL_NQ] = (double)r->seqlen_q;
  inputs->symbols[FT_SYMBOL_NK] = (double)r->seqlen_k;
  sample->problem.score = known;
  run_forward(sample);
}

/* The loss with one number of what is captured a step further. */
static double loss_beside(struct sample *sample, float *entry, double step) {
  const struct ft_score_inputs kept = sample->problem.score_inputs;
  const float at = entry != NULL ? *entry : 0;
  if (entry != NULL) *entry = at + (float)step;
  if (entry == NULL) sample->problem.score_inputs.scalars[0] += step;
  const double loss = loss_of(&sample->problem);
  if (entry != NULL) *entry = at;
  sample->problem.score_inputs = kept;
  return loss;
}

static void compare_captured(struct sample *sample) {
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
  struct ft_template_files files;
  struct ft_score_registry registry = {0};
  const struct ft_known_score *known;
  int64_t number;
  ck_assert_int_eq(ft_template_files_open(&files, NULL), FT_OK);
  ck_assert_int_eq(ft_registry_add(&registry, &files, "mine", scored[_i].score, &number), FT_OK);
  ck_assert_int_eq(ft_registry_find(&registry, &files, number, &known), FT_OK);
  struct sample sample = sample_of(scored[_i].request);
  give_score(&sample, known);
  compare_with_slopes(&sample);
  compare_captured(&sample);
  sample_free(&sample);
  ft_registry_close(&registry);
  ft_template_files_close(&files);
}
END_TEST

/* ---- verdicts ---- */

/* All gradients as the plain computation has them, of a problem that may not be the one asked. */
static void plain_gradients(const struct ft_host_problem *problem, uint16_t *values[FT_GRADIENTS]) {
  const struct ft_request *r = &problem->request;
  struct ft_query_terms *terms;
  struct ft_gradient_row row[FT_GRADIENTS];
  struct ft_scorer scorer;
  ck_assert_int_eq(ft_query_terms_make(&terms, problem), FT_OK);
  ck_assert_int_eq(ft_scorer_open(&scorer, problem), FT_OK);
  for (int g = 0; g < FT_GRADIENTS; g++) {
    const int64_t rows = ft_gradient_rows(r, (enum ft_gradient)g);
    const int dim = ft_gradient_dim(r, (enum ft_gradient)g);
    values[g] = malloc((size_t)(rows * dim) * sizeof(uint16_t));
    ck_assert_ptr_nonnull(values[g]);
    for (int64_t n = 0; n < rows; n++) {
      const struct ft_row at = ft_gradient_row_at(r, (enum ft_gradient)g, n);
      if (g == FT_GRADIENT_Q)
        ft_query_gradient(problem, &scorer, terms, at, &row[FT_GRADIENT_Q]);
      else
        ft_key_gradients(problem, &scorer, terms, at, &row[FT_GRADIENT_K], &row[FT_GRADIENT_V]);
      for (int d = 0; d < dim; d++) values[g][n * dim + d] = ft_to_dtype(r->dtype, row[g].plain[d]);
    }
  }
  ft_scorer_close(&scorer);
  free(terms);
}

static void free_gradients(uint16_t *values[FT_GRADIENTS]) {
  for (int g = 0; g < FT_GRADIENTS; g++) free(values[g]);
}

static struct ft_comparison compare(const struct sample *sample, uint16_t *values[FT_GRADIENTS]) {
  struct ft_gradient_answers *answers;
  struct ft_comparison comparison;
  ck_assert_int_eq(ft_gradient_answers_make(&answers, &sample->problem, 1 << 20, 1, 2), FT_OK);
  void *const given[FT_GRADIENTS] = {values[0], values[1], values[2]};
  ft_gradient_answers_compare(answers, given, &comparison);
  ft_gradient_answers_free(answers);
  return comparison;
}

static const char *const requests[] = {
    "backward bf16 d64 nq70 nk90 b2 hq4 hkv2",
    "backward fp16 d72 dv40 nq40 nk23 b2 hq2 hkv1 causal",
    "backward bf16 d64 nq70 nk90 b2 hq2 hkv1 dropout causal=top-left",
    "backward fp16 d128 nq70 nk90 hq2 hkv1 mask=16x32@0.5 dropout"};
enum { REQUESTS = sizeof requests / sizeof *requests };

START_TEST(the_plain_computation_is_right) {
  struct sample sample = sample_of(requests[_i]);
  uint16_t *values[FT_GRADIENTS];
  plain_gradients(&sample.problem, values);
  const struct ft_comparison verdict = compare(&sample, values);
  ck_assert_msg(verdict.error_ratio <= 0.5, "seed %llu: %g: %s", (unsigned long long)sample.seed,
                verdict.error_ratio, verdict.worst);
  for (int g = 0; g < FT_GRADIENTS; g++) ck_assert_double_gt(verdict.gradients[g].error, 0);
  free_gradients(values);
  sample_free(&sample);
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
  struct sample sample = sample_of("backward bf16 d64 nq70 nk90 b2 hq4 hkv2 causal dropout");
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
  plain_gradients(&other, values);
  plain_gradients(&sample.problem, right);
  if (_i == ROW_ENLARGED) {
    for (int d = 0; d < 64; d++) {
      const double all = ft_from_dtype(FT_BF16, right[FT_GRADIENT_Q][69 * 64 + d]);
      values[FT_GRADIENT_Q][69 * 64 + d] = ft_to_dtype(FT_BF16, all * (1 + 0.08));
    }
  }
  const struct ft_comparison verdict = compare(&sample, values);
  ck_assert_msg(verdict.error_ratio > 1, "seed %llu: mistake %d passes with %g",
                (unsigned long long)sample.seed, _i, verdict.error_ratio);
  free_gradients(values);
  free_gradients(right);
  free(lse);
  free(dout);
  free(o);
  sample_free(&sample);
}
END_TEST

/* Queries 0 .. 19 see nothing, nor does any query see keys of column blocks that are off. */
START_TEST(nothing_seen_is_exactly_zero) {
  struct sample sample = sample_of("backward fp16 d32 nq40 nk20 hq2 hkv1 causal mask=16x16@0.99");
  uint16_t *values[FT_GRADIENTS];
  memset(sample.blocks, 1, 2 * 3 * 2);
  for (int line = 0; line < 2 * 3; line++) sample.blocks[line * 2 + 1] = 0; /* keys 16 .. 19 */
  run_forward(&sample);
  plain_gradients(&sample.problem, values);
  for (int n = 0; n < 20 * 32; n++) ck_assert_uint_eq(values[FT_GRADIENT_Q][n] & 0x7FFF, 0);
  for (int n = 16 * 32; n < 20 * 32; n++) {
    ck_assert_uint_eq(values[FT_GRADIENT_K][n] & 0x7FFF, 0);
    ck_assert_uint_eq(values[FT_GRADIENT_V][n] & 0x7FFF, 0);
  }
  ck_assert_double_le(compare(&sample, values).error_ratio, 0.5);
  values[FT_GRADIENT_Q][5] = 1; /* the smallest number there is */
  const struct ft_comparison query = compare(&sample, values);
  ck_assert_msg(isinf(query.error_ratio) && strstr(query.worst, "dQ[5] of batch 0 head 0 row 0"),
                "%s", query.worst);
  values[FT_GRADIENT_Q][5] = 0;
  values[FT_GRADIENT_V][16 * 32] = 0x7E00; /* NaN */
  const struct ft_comparison key = compare(&sample, values);
  ck_assert_msg(isinf(key.error_ratio) && strstr(key.worst, "dV[0] of batch 0 head 0 key 16"), "%s",
                key.worst);
  free_gradients(values);
  sample_free(&sample);
}
END_TEST

/* One key: P = 1 and dS = 0 but for rounding, by LSE and by the order of sums. */
START_TEST(what_cancels_is_allowed_its_rounding) {
  struct sample sample =
      sample_of(_i ? "backward fp16 d64 nq30 nk1 hq2" : "backward bf16 d64 nq30 nk1 hq2");
  const struct ft_request *r = &sample.problem.request;
  uint16_t *values[FT_GRADIENTS];
  for (int n = 0; n < 60; n++) sample.dlse[n] = 0;
  plain_gradients(&sample.problem, values);
  ck_assert_double_le(compare(&sample, values).error_ratio, 1);
  for (int n = 0; n < 30 * 2 * 64; n++) /* an error of fp32 */
    values[FT_GRADIENT_Q][n] = ft_to_dtype(r->dtype, 3e-7);
  ck_assert_double_le(compare(&sample, values).error_ratio, 1);
  values[FT_GRADIENT_Q][7] = ft_to_dtype(r->dtype, 3e-4);
  ck_assert_double_gt(compare(&sample, values).error_ratio, 1);
  free_gradients(values);
  sample_free(&sample);
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
