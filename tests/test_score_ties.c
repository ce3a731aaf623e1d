/* test_score_ties.c: ties are comparisons of a score function whose operands differ by less than
 * fp32 rounds.
 * in -> out: expressions -> which ties are found; results of problems, computed with one
 * comparison decided the other way -> right where that comparison is a tie, else wrong. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/family.h"
#include "generator/score/derive.h"
#include "generator/score/ties.h"
#include "generator/status.h"
#include "tests/gradient_lab.h"
#include "tests/suites.h"
#include "tuner/verify/answers.h"
#include "tuner/verify/captured_answers.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"

/* ---- expressions ---- */

static const struct {
  const char *text;
  double s, of_s, i;
  int ways;
  double slope, other_slope; /* decided as float64 does; all the other way */
  double other_score;
} expressions[] = {
    {"score = max(2 * s, 0.5)", 0.25000001, 1e-7, 0, 1, 2, 0, 0.50000002},
    {"score = max(2 * s, 0.5)", 0.2501, 1e-7, 0, 0, 2, 2, 0.5002},
    {"score = abs(s)", -1e-9, 1e-8, 0, 1, -1, 1, 1e-9},
    {"score = max(tanh(s), 0.5)", 0.5493061443340549, 0, 0, 1, 0.75, 0, 0.5},
    {"score = max(tanh(s), 0.5)", 0.549307, 0, 0, 0, 0.7499993, 0.7499993, 0.50000064},
    {"score = where(s < 1, s, 3 * s)", 1, 1e-7, 0, 1, 3, 1, 1},
    {"score = where(s < 1, s, 3 * s)", 1, 0, 0, 0, 3, 3, 3}, /* all of it is exact */
    {"score = where(float(i) * 0.5 == 1.5, s, -s)", 2, 1e-6, 3, 0, 1, 1, 2},
    {"score = where(float(i) * 0.1 < 0.3, s, 2 * s)", 2, 0, 3, 1, 2, 1, 2},
    {"score = s + floor(i * 0.1)", 2, 0, 30, 1, 1, 1, 4},
    {"score = s + floor(i * 0.25)", 2, 0, 12, 0, 1, 1, 5},
    {"score = where(i <= nk, s, 0)", 2, 1e-6, 0, 0, 1, 1, 2}, /* integers */
    {"score = where(s * inf < inf, s, 2 * s)", 2, 1e-6, 0, 0, 2, 2, 4},
    {"score = max(max(s, 0.25), 0.25 * exp(0 * i))", 0.25, 1e-7, 0, 3, 1, 0, 0.25}};

START_TEST(ties_are_found) {
  struct ft_score score;
  struct ft_interpreter interpreter;
  struct ft_derivatives derivatives;
  struct ft_ties ties;
  struct ft_score_inputs inputs = {
      .symbols = {[FT_SYMBOL_S] = expressions[_i].s, [FT_SYMBOL_I] = expressions[_i].i}};
  const char *const text = expressions[_i].text;
  ck_assert_msg(ft_score_read(&score, "text", text, strlen(text)) == FT_OK, "%s", ft_detail());
  ck_assert_msg(ft_score_derive(&score, 0, &derivatives) == FT_OK, "%s", ft_detail());
  const int roots[] = {score.score, derivatives.by_s};
  ck_assert_int_eq(ft_interpreter_open(&interpreter, &score, roots, 2), FT_OK);
  ck_assert_int_eq(ft_ties_open(&ties, &interpreter), FT_OK);
  ft_interpret(&interpreter, &inputs);
  const double before = ft_interpreter_value(&interpreter, score.score);
  ck_assert_double_eq_tol(ft_interpreter_value(&interpreter, roots[1]), expressions[_i].slope,
                          1e-6);
  const int ways = ft_ties_find(&ties, &interpreter, expressions[_i].of_s);
  ck_assert_msg(ways == expressions[_i].ways, "%s: %d ways", text, ways);
  ft_ties_interpret(&ties, &interpreter, &inputs, ways);
  ck_assert_double_eq_tol(ft_interpreter_value(&interpreter, roots[1]), expressions[_i].other_slope,
                          1e-6);
  ck_assert_double_eq_tol(ft_interpreter_value(&interpreter, roots[0]), expressions[_i].other_score,
                          1e-6);
  ft_ties_interpret(&ties, &interpreter, &inputs, 0);
  ck_assert_double_eq(ft_interpreter_value(&interpreter, roots[0]), before);
  ft_ties_close(&ties);
  ft_interpreter_close(&interpreter);
  ft_score_free(&score);
}
END_TEST

/* ---- problems ---- */

/* A score compares tanh(s) with t. Of every EVERY-th key t is tanh(s) in fp32, within `beside` of
 * itself on either side; of the others it is well above or below. */
enum { EVERY = 16 };

struct tied {
  struct gradient_sample sample;
  struct gradient_score score;
  float *entries, *others; /* [head][query][key]; others: on the other side where there is a tie */
};

static float number_beside(double value, double beside, bool above) {
  return (float)(value * (1 + (above ? beside : -beside)));
}

/* beside_other: of others. */
static void make_entries(struct tied *tied, double beside, double beside_other) {
  const struct ft_host_problem *const problem = &tied->sample.problem;
  const struct ft_request *const r = &problem->request;
  uint64_t state = tied->sample.seed;
  float q[FT_REFERENCE_DIM], k[FT_REFERENCE_DIM], plain;
  double s;
  for (int64_t n = 0; n < r->heads_q * r->seqlen_q * r->seqlen_k; n++) {
    const struct ft_row row = {.head = (int)(n / r->seqlen_k / r->seqlen_q),
                               .i = n / r->seqlen_k % r->seqlen_q};
    const int64_t j = n % r->seqlen_k;
    const bool above = ft_random_next(&state) >> 63;
    ft_widen(r->dtype, tied->sample.q + (row.i * r->heads_q + row.head) * r->head_dim, q,
             r->head_dim);
    ft_widen(r->dtype, ft_kv_row(problem, problem->k, r->head_dim, row, j), k, r->head_dim);
    ft_dot(q, k, r->head_dim, &s, &plain);
    const double value = tanh(s * problem->scale);
    tied->entries[n] = tied->others[n] = (float)(value + (above ? 0.2 : -0.2));
    if (j % EVERY != 0) continue;
    tied->entries[n] = number_beside(value, beside, above);
    tied->others[n] = number_beside(value, beside_other, !above);
  }
}

static void give_entries(struct tied *tied, const float *entries) {
  const struct ft_request *const r = &tied->sample.problem.request;
  struct ft_score_inputs *const inputs = &tied->sample.problem.score_inputs;
  inputs->tensors[0] = (struct ft_captured){.data = entries,
                                            .extents = {r->heads_q, r->seqlen_q, r->seqlen_k},
                                            .strides = {r->seqlen_q * r->seqlen_k, r->seqlen_k, 1}};
}

static struct tied tied_of(const char *request, const char *text, double beside,
                           double beside_other) {
  struct tied tied = {.sample = gradient_sample_of(request)};
  struct ft_host_problem *const problem = &tied.sample.problem;
  const struct ft_request *const r = &problem->request;
  const size_t count = (size_t)(r->heads_q * r->seqlen_q * r->seqlen_k);
  gradient_score_open(&tied.score, text);
  tied.entries = malloc(count * sizeof(float));
  tied.others = malloc(count * sizeof(float));
  ck_assert(tied.entries && tied.others);
  make_entries(&tied, beside, beside_other);
  problem->score_inputs.symbols[FT_SYMBOL_NQ] = (double)r->seqlen_q;
  problem->score_inputs.symbols[FT_SYMBOL_NK] = (double)r->seqlen_k;
  problem->score = tied.score.known;
  if (tied.score.known->gradients[0].exists) problem->request.score_gradients = 1;
  give_entries(&tied, tied.entries);
  gradient_sample_forward(&tied.sample);
  return tied;
}

static void tied_free(struct tied *tied) {
  gradient_score_close(&tied->score);
  gradient_sample_free(&tied->sample);
  free(tied->entries);
  free(tied->others);
}

#define TENSOR "local t = tensor('t', 'fp32', heads, nq, nk)\n"

static const struct {
  const char *request, *text;
} problems[] = {
    {"backward fp16 d48 hq2 hkv1 nq40 nk70", TENSOR "score = 3 * max(tanh(s), t(h, i, j))"},
    {"backward bf16 d64 hq2 nq30 nk64 causal",
     TENSOR "score = s + 2 * min(t(h, i, j), tanh(s), 9)"},
    {"backward fp16 d64 hq2 nq40 nk50 dropout", TENSOR "score = s + abs(tanh(s) - t(h, i, j))"},
    {"backward bf16 d32 hq2 nq40 nk50", TENSOR "score = where(tanh(s) < t(h, i, j), s, 2 * s - 1)"},
    {"backward fp16 d32 hq2 nq40 nk50", TENSOR "score = where(t(h, i, j) <= tanh(s), s, -inf)"}};

/* By which tanh(s) errs, of itself: of its four units 2^-24 below. */
static const double TIE = 1.5e-7, NO_TIE = 1e-5;

/* All gradients as a kernel leaves them that decides by `others`. */
static struct ft_comparison gradients_verdict(struct tied *tied) {
  uint16_t *values[FT_GRADIENTS];
  struct ft_captured_answers *answers, *of_others;
  struct ft_host_problem *const problem = &tied->sample.problem;
  float *given = NULL;
  give_entries(tied, tied->others);
  gradients_plain(problem, values);
  if (problem->request.score_gradients)
    ck_assert_int_eq(ft_captured_answers_make(&of_others, problem), FT_OK);
  give_entries(tied, tied->entries);
  struct ft_comparison verdict = gradients_compare(&tied->sample, values);
  if (problem->request.score_gradients) {
    const struct ft_captured_answer *const of = &of_others->of[0];
    given = malloc((size_t)of->count * sizeof(float));
    ck_assert_ptr_nonnull(given);
    for (int64_t n = 0; n < of->count; n++) given[n] = (float)of->exact[n];
    ck_assert_int_eq(ft_captured_answers_make(&answers, problem), FT_OK);
    ft_captured_answers_compare(answers, problem, 0, given, &verdict);
    ft_captured_answers_free(answers);
    ft_captured_answers_free(of_others);
  }
  free(given);
  gradients_free(values);
  return verdict;
}

static void assert_right(const struct tied *tied, const struct ft_comparison *verdict) {
  ck_assert_msg(verdict->error_ratio <= 1, "seed %llu: %g: %s",
                (unsigned long long)tied->sample.seed, verdict->error_ratio, verdict->worst);
}

static void assert_wrong(const struct tied *tied, const struct ft_comparison *verdict) {
  ck_assert_msg(verdict->error_ratio > 1, "seed %llu: passes with %g: %s",
                (unsigned long long)tied->sample.seed, verdict->error_ratio, verdict->worst);
}

/* The problem, of which comparisons with this gap have gone the other way, is right or wrong. */
static void expect_verdict(int problem, double gap,
                           struct ft_comparison (*verdict_of)(struct tied *),
                           void (*expect)(const struct tied *, const struct ft_comparison *)) {
  struct tied tied = tied_of(problems[problem].request, problems[problem].text, gap, gap);
  const struct ft_comparison verdict = verdict_of(&tied);
  expect(&tied, &verdict);
  tied_free(&tied);
}

START_TEST(ties_of_a_backward_may_be_decided_otherwise) {
  expect_verdict(_i, TIE, gradients_verdict, assert_right);
}
END_TEST

/* What float64 decides by more than rounding is decided otherwise by a kernel that is wrong. */
START_TEST(what_is_no_tie_may_not) {
  expect_verdict(_i, NO_TIE, gradients_verdict, assert_wrong);
}
END_TEST

/* Nor may keys beside ties, of one row. */
START_TEST(a_wrong_slope_beside_ties_is_seen) {
  struct tied tied = tied_of(problems[_i].request, problems[_i].text, TIE, TIE);
  const struct ft_request *const r = &tied.sample.problem.request;
  for (int64_t j = 0; j < r->seqlen_k; j++) {
    float *const entry = &tied.others[(r->seqlen_q - 1) * r->seqlen_k + j];
    if (j % EVERY != 0) *entry = tied.entries[(r->seqlen_q - 1) * r->seqlen_k + j] < 0 ? 5 : -5;
  }
  const struct ft_comparison verdict = gradients_verdict(&tied);
  assert_wrong(&tied, &verdict);
  tied_free(&tied);
}
END_TEST

/* The verdict over O and LSE of a forward that decides by `others`. */
static struct ft_comparison forward_verdict(struct tied *tied) {
  const struct ft_host_problem *const problem = &tied->sample.problem;
  const struct ft_request *const r = &problem->request;
  const int64_t count = ft_gradient_rows(r, FT_GRADIENT_Q);
  struct ft_row *const rows = malloc((size_t)count * sizeof *rows);
  uint16_t *const o = malloc((size_t)(count * r->head_dim_v) * sizeof *o);
  struct ft_comparison verdict;
  ck_assert(rows && o);
  give_entries(tied, tied->others);
  gradient_sample_forward(&tied->sample);
  give_entries(tied, tied->entries);
  for (int64_t n = 0; n < count; n++) {
    rows[n] = ft_gradient_row_at(r, FT_GRADIENT_Q, n);
    memcpy(o + n * r->head_dim_v,
           tied->sample.o + (rows[n].i * r->heads_q + rows[n].head) * r->head_dim_v,
           (size_t)r->head_dim_v * sizeof *o);
  }
  ck_assert_int_eq(
      ft_reference_compare(&verdict, problem, rows, (int)count, o, tied->sample.lse, 2), FT_OK);
  free(rows);
  free(o);
  return verdict;
}

enum { FORWARD = 3 }; /* the first whose values jump */

START_TEST(ties_of_a_forward_may_be_decided_otherwise) {
  expect_verdict(_i, TIE, forward_verdict, assert_right);
}
END_TEST

START_TEST(what_is_no_tie_of_a_forward_may_not) {
  expect_verdict(_i, NO_TIE, forward_verdict, assert_wrong);
}
END_TEST

Suite *make_score_ties_suite(void) {
  Suite *const suite = suite_create("score_ties");
  TCase *const tests = tcase_create("score_ties");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, ties_are_found, 0, FT_COUNT(expressions));
  tcase_add_loop_test(tests, ties_of_a_backward_may_be_decided_otherwise, 0, FT_COUNT(problems));
  tcase_add_loop_test(tests, what_is_no_tie_may_not, 0, FT_COUNT(problems));
  tcase_add_loop_test(tests, a_wrong_slope_beside_ties_is_seen, 0, FT_COUNT(problems));
  tcase_add_loop_test(tests, ties_of_a_forward_may_be_decided_otherwise, FORWARD,
                      FT_COUNT(problems));
  tcase_add_loop_test(tests, what_is_no_tie_of_a_forward_may_not, FORWARD, FT_COUNT(problems));
  suite_add_tcase(suite, tests);
  return suite;
}
