/* captured_answers.c: what the gradients of captured things must be, how far off a kernel may be.
 * in -> out: host problem -> float64 sums, allowances; a kernel's gradient -> verdict.
 *
 * An element is a sum over the rows and keys whose scores read it, of P o (dP - delta) times the
 * derivative. Its yardstick is the root of the sum of squares of what is added, if nothing in it
 * cancelled. The allowance is twice the error of the plain computation over the yardsticks, and no
 * less than that of a P rounded to the dtype: of a few elements the plain error may be small by
 * chance. How far ties of the score may move the element (gradients.h) is allowed besides. */
#include "tuner/verify/captured_answers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "generator/status.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/scorer.h"

static int allocate(struct ft_captured_answer *of, int64_t count) {
  *of = (struct ft_captured_answer){.count = count,
                                    .exact = calloc((size_t)count, sizeof(double)),
                                    .plain = calloc((size_t)count, sizeof(double)),
                                    .ties = calloc((size_t)count, sizeof(double)),
                                    .square = calloc((size_t)count, sizeof(double))};
  if (of->exact && of->plain && of->ties && of->square) return FT_OK;
  return ft_fail(FT_E_MEMORY, "no memory for the reference of a gradient of %lld elements",
                 (long long)count);
}

struct summing {
  struct ft_captured_answers *answers;
  struct ft_scorer scorer;
  int64_t wanted;
  /* Of the last key, by the number of the derivative: what it adds, and where. */
  double own[FT_DERIVATIVES], sizes[FT_DERIVATIVES];
  int64_t places[FT_DERIVATIVES];
};

/* What the n-th derivative adds may be `value` at `place`, for all that ties say. Of several ways
 * the differences are added up, which is no less than the largest. */
static void add_other(const struct summing *summing, struct ft_captured_answer *of, int n,
                      int64_t place, double value, double size) {
  const bool same = place == summing->places[n];
  const double own_size = same ? summing->sizes[n] : 0;
  of->ties[place] += fabs(value - (same ? summing->own[n] : 0));
  of->square[place] += fmax(0, size * size - own_size * own_size);
  if (!same) of->ties[summing->places[n]] += fabs(summing->own[n]);
}

static void add(void *payload, const struct ft_score_gradient *gradient) {
  static const double least_slope = 0x1p-8; /* as in gradients.c */
  struct summing *const summing = payload;
  const struct ft_known_score *const known = summing->scorer.known;
  for (int n = 0; n < known->derivatives.count; ++n) {
    const int bit = ft_derivative_bit(known, n);
    if (!(summing->wanted >> bit & 1)) continue;
    struct ft_captured_answer *const of = &summing->answers->of[bit];
    const int64_t place = ft_scorer_place(&summing->scorer, n);
    const double derivative = ft_scorer_derivative(&summing->scorer, n);
    const double value = gradient->exact == 0 ? 0 : gradient->exact * derivative;
    const double size =
        gradient->size == 0 ? 0 : gradient->size * fmax(fabs(derivative), least_slope);
    if (gradient->other > 0) {
      add_other(summing, of, n, place, value, size);
      continue;
    }
    summing->own[n] = value;
    summing->sizes[n] = size;
    summing->places[n] = place;
    if (gradient->size == 0) continue; /* the key is hidden */
    of->exact[place] += gradient->exact * derivative;
    of->plain[place] += (double)gradient->plain * derivative;
    of->square[place] += size * size;
  }
}

static int sum_up(struct summing *summing, const struct ft_host_problem *problem) {
  const struct ft_request *const r = &problem->request;
  struct ft_query_terms *terms;
  FT_TRY(ft_query_terms_make(&terms, problem));
  const int status = ft_scorer_open(&summing->scorer, problem);
  for (int64_t n = 0; status == FT_OK && n < ft_gradient_rows(r, FT_GRADIENT_Q); ++n)
    ft_score_gradients_of(problem, &summing->scorer, terms, ft_gradient_row_at(r, FT_GRADIENT_Q, n),
                          add, summing);
  ft_scorer_close(&summing->scorer);
  free(terms);
  return status;
}

int ft_captured_answers_make(struct ft_captured_answers **answers,
                             const struct ft_host_problem *problem) {
  int status = FT_OK;
  struct ft_captured_answers *const made = calloc(1, sizeof *made);
  struct summing summing = {.answers = made, .wanted = problem->request.score_gradients};
  *answers = NULL;
  if (made == NULL) return ft_fail(FT_E_MEMORY, "no memory for the reference of gradients");
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit)
    if (summing.wanted >> bit & 1)
      FT_CHECK(
          allocate(&made->of[bit], ft_gradient_count(problem->score, &problem->score_inputs, bit)));
  FT_CHECK(sum_up(&summing, problem));
  *answers = made;
done:
  if (status != FT_OK) ft_captured_answers_free(made);
  return status;
}

void ft_captured_answers_free(struct ft_captured_answers *answers) {
  if (answers == NULL) return;
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    free(answers->of[bit].exact);
    free(answers->of[bit].plain);
    free(answers->of[bit].ties);
    free(answers->of[bit].square);
  }
  free(answers);
}

/* ---- the verdict ---- */

/* Of the plain computation, over the yardsticks. */
static double plain_error(const struct ft_captured_answer *of, enum ft_dtype dtype) {
  double worst = ft_half_ulp(dtype, 1.0);
  for (int64_t n = 0; n < of->count; ++n)
    if (of->square[n] > 0)
      worst = fmax(worst, fabs(of->plain[n] - of->exact[n]) / sqrt(of->square[n]));
  return worst;
}

static double ratio_of(double error, double allowed) {
  if (error == 0) return 0;
  return isfinite(error) && allowed > 0 ? error / allowed : (double)INFINITY;
}

void ft_captured_answers_compare(const struct ft_captured_answers *answers,
                                 const struct ft_host_problem *problem, int bit,
                                 const float *values, struct ft_comparison *comparison) {
  const struct ft_captured_answer *const of = &answers->of[bit];
  const double share = 2 * plain_error(of, problem->request.dtype) + 0x1p-20;
  for (int64_t n = 0; n < of->count; ++n) {
    const double allowed = share * sqrt(of->square[n]) + of->ties[n];
    const double ratio = ratio_of(fabs((double)values[n] - of->exact[n]), allowed);
    if (!(ratio > comparison->error_ratio)) continue;
    comparison->error_ratio = ratio;
    comparison->column = FT_COLUMN_NONE;
    (void)snprintf(comparison->worst, sizeof comparison->worst,
                   "%.48s[%lld] is %.7g, not %.7g; it may be off by %.3g",
                   problem->score->gradients[bit].name, (long long)n, (double)values[n],
                   of->exact[n], allowed);
  }
}
