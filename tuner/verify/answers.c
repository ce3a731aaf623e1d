/* answers.c: what chosen rows of a problem must give, how far off a kernel may be, and the verdict.
 * in -> out: host problem + rows -> float64 results, allowances; a kernel's outputs -> verdict.
 *
 * The allowance is twice the error of the plain computation on the same rows, plus a floor for what
 * the plain computation happens to get exactly right (one visible key: P = 1, O = V).
 *
 * A kernel of e4m3 rescales P lazily, so P may be multiplied by any factor between 1/2 and 1 before
 * it is rounded. The factor decides how much rounding errs, above all where one key is nearly all
 * of a row: a P of exactly 1 is not rounded at all. So the plain computation runs with four
 * factors. The error of an element is the largest of the four. The squared error of all rows is the
 * sum of each row's mean. Rows have factors of their own, so what a row's largest squared error is
 * above its mean is added as the root of the sum of squares.
 *
 * Where a score function decides by less than what fp32 may err by, both answers are right
 * (generator/score/ties.h). How far that may move a row is allowed besides.
 *
 * Floor of O: half a unit in the last place of the row's largest value, the rounding of O itself.
 *
 * Of fp32 the floor has 2^-20 besides. A product is made of three of TF32, which take P and V to
 * within 2^-22 of themselves each. ex2.approx errs by up to 2^-22 in P, and again in the factor by
 * which parts of a row's keys are merged. That factor is the same for all elements of the row. The
 * error of the sums of S grows with the scores (ft_wobble).
 *
 * Floor of LSE: 1e-5 + 2e-6 |LSE|. Tensor cores truncate where they accumulate S, each step of 16
 * by up to 2^-22 of the largest partial sum, and ex2.approx and lg2.approx err by 2 ulp. The plain
 * computation, in IEEE fp32, does neither. One key lost among 20 000 still shows, as 5e-5.
 * Of e4m3 they cut each product off 13 bits below the largest number of a sum of 33: scores err by
 * some 2^-13 of what their products are without signs, which is at most scale |q| |k|. The floor
 * has twice that of the row's longest key besides.
 * Kernels take the largest score of the steps before from each score. That difference is rounded to
 * fp32. It may be as large as the row's largest score less that of another step: 2^-24 of that is
 * allowed besides. */

#include "tuner/verify/answers.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/threads.h"

/* By which P, and so O, may err besides where scores of e4m3 do (above): the plain computation may
 * have all of P exact. */
static const double E4M3_SCORES = 0x1p-8;

/* By which P may err of fp32, from the operands of its products and from ex2.approx. */
static const double OF_FP32 = 0x1p-20;

/* The unit of ft_wobble. */
static const double WOBBLE = 0x1p-22;

struct ft_answers {
  enum ft_dtype dtype; /* of O */
  bool e4m3;
  int row_count, dim;
  struct ft_row *rows;
  double *o;                           /* [row][dim] */
  double *lse;                         /* [row] */
  double *largest;                     /* [row]: max |o| */
  double *lse_besides;                 /* [row]: error of LSE that is allowed besides */
  double *besides;                     /* [row]: relative error of O that is allowed besides */
  double *ties_o, *ties_lse;           /* [row]: how far a score's ties may move them */
  double *plain_square, *plain_spread; /* [row]: squared error, mean; the largest less it */
  double *plain_element, *plain_lse;   /* [row]: largest, absolute error */
  double o_norm, o_allowed;            /* relative L2 */
  double element_error;                /* of the plain one, relative to the row's largest value */
  double lse_error;
};

void ft_answers_free(struct ft_answers *answers) {
  if (!answers) return;
  free(answers->rows);
  free(answers->o);
  free(answers->lse);
  free(answers->largest);
  free(answers->lse_besides);
  free(answers->besides);
  free(answers->ties_o);
  free(answers->ties_lse);
  free(answers->plain_square);
  free(answers->plain_spread);
  free(answers->plain_element);
  free(answers->plain_lse);
  free(answers);
}

static struct ft_answers *allocate(const struct ft_request *request, int row_count) {
  struct ft_answers *answers = calloc(1, sizeof *answers);
  if (!answers) return NULL;
  const size_t rows = (size_t)row_count;
  answers->dtype = ft_output_dtype(request);
  answers->e4m3 = request->dtype == FT_E4M3;
  answers->row_count = row_count;
  answers->dim = request->head_dim_v;
  answers->rows = malloc(rows * sizeof *answers->rows);
  answers->o = calloc(rows * (size_t)request->head_dim_v, sizeof(double));
  answers->lse = calloc(rows, sizeof(double));
  answers->largest = calloc(rows, sizeof(double));
  answers->lse_besides = calloc(rows, sizeof(double));
  answers->besides = calloc(rows, sizeof(double));
  answers->ties_o = calloc(rows, sizeof(double));
  answers->ties_lse = calloc(rows, sizeof(double));
  answers->plain_square = calloc(rows, sizeof(double));
  answers->plain_spread = calloc(rows, sizeof(double));
  answers->plain_element = calloc(rows, sizeof(double));
  answers->plain_lse = calloc(rows, sizeof(double));
  if (answers->rows && answers->o && answers->lse && answers->largest && answers->lse_besides &&
      answers->besides && answers->ties_o && answers->ties_lse && answers->plain_square &&
      answers->plain_spread && answers->plain_element && answers->plain_lse) {
    return answers;
  }
  ft_answers_free(answers);
  return NULL;
}

struct work {
  const struct ft_host_problem *problem;
  struct ft_answers *answers;
  atomic_int next;   /* the next row */
  atomic_int failed; /* there was no memory for a thread's scratch */
};

static double largest_of(const double *values, int count) {
  double largest = 0;
  for (int d = 0; d < count; d++) largest = fmax(largest, fabs(values[d]));
  return largest;
}

/* The squared error of the plain computation. Keeps its largest element's. */
static double plain_error(struct ft_answers *answers, int index, const double *plain) {
  const double *o = answers->o + (size_t)index * (size_t)answers->dim;
  double square = 0, element = 0;
  for (int d = 0; d < answers->dim; d++) {
    const double error = fabs(plain[d] - o[d]);
    square += error * error;
    element = fmax(element, error);
  }
  answers->plain_element[index] = fmax(answers->plain_element[index], element);
  return square;
}

static double besides_of(const struct ft_host_problem *problem,
                         const struct ft_row_scratch *scratch) {
  const struct ft_request *request = &problem->request;
  if (request->dtype == FT_E4M3) return E4M3_SCORES;
  if (ft_output_dtype(request) != FT_FP32) return 0;
  return OF_FP32 + WOBBLE * (ft_wobble(request, scratch->largest_score) - 1) + scratch->rounding;
}

static void answer_row(struct work *work, struct ft_row_scratch *scratch, int index) {
  enum { PLACES = 4 };
  struct ft_answers *answers = work->answers;
  const struct ft_row row = answers->rows[index];
  double *o = answers->o + (size_t)index * (size_t)answers->dim;
  double plain[FT_REFERENCE_DIM], plain_lse = 0, sum = 0, largest = 0;
  const int64_t count = ft_row_scores(work->problem, row, scratch);
  ft_row_exact(work->problem, row, scratch, count, o, &answers->lse[index]);
  ft_row_ties(work->problem, row, scratch, count, o, answers->lse[index], &answers->ties_o[index],
              &answers->ties_lse[index]);
  const int places = answers->e4m3 ? PLACES : 1;
  for (int n = 0; n < places; n++) {
    scratch->place = exp2f(-(float)n / PLACES);
    ft_row_plain(work->problem, row, scratch, count, plain, &plain_lse);
    const double square = plain_error(answers, index, plain);
    sum += square;
    largest = fmax(largest, square);
  }
  answers->plain_square[index] = sum / places;
  answers->plain_spread[index] = largest - sum / places;
  answers->largest[index] = largest_of(o, answers->dim);
  answers->lse_besides[index] = 0x1p-12 * scratch->score_bound + 0x1p-24 * scratch->spread;
  answers->besides[index] = besides_of(work->problem, scratch);
  answers->plain_lse[index] = count > 0 ? fabs(plain_lse - answers->lse[index]) : 0;
}

static void *answer_rows(void *payload) {
  struct work *work = payload;
  struct ft_row_scratch scratch;
  if (ft_row_scratch_make(&scratch, work->problem) != FT_OK) {
    work->failed = 1;
    return NULL;
  }
  for (int index = work->next++; index < work->answers->row_count; index = work->next++) {
    answer_row(work, &scratch, index);
  }
  ft_row_scratch_free(&scratch);
  return NULL;
}

/* Sums in row order, so that the allowances do not depend on which thread did what. */
static void sum_up(struct ft_answers *answers) {
  double square = 0, plain_square = 0, spread_square = 0, ties_square = 0, besides = 0;
  for (int index = 0; index < answers->row_count; index++) {
    const double *o = answers->o + (size_t)index * (size_t)answers->dim;
    for (int d = 0; d < answers->dim; d++) square += o[d] * o[d];
    plain_square += answers->plain_square[index];
    spread_square += answers->plain_spread[index] * answers->plain_spread[index];
    ties_square += answers->ties_o[index] * answers->ties_o[index] * answers->dim;
    besides = fmax(besides, answers->besides[index]);
    if (answers->largest[index] > 0) {
      answers->element_error =
          fmax(answers->element_error, answers->plain_element[index] / answers->largest[index]);
    }
    answers->lse_error = fmax(answers->lse_error, answers->plain_lse[index]);
  }
  /* Rounding O alone errs by about half a unit roundoff in the mean. */
  const double floor_l2 = 0.5 * ft_half_ulp(answers->dtype, 1.0);
  answers->o_norm = sqrt(square);
  answers->o_allowed = floor_l2 + besides;
  if (square > 0)
    answers->o_allowed +=
        2 * sqrt((plain_square + sqrt(spread_square)) / square) + sqrt(ties_square / square);
}

/* Where a score makes NaN there is nothing to compare: it is what memory holds that no kernel
 * wrote, too. */
static int check_numbers(const struct ft_answers *answers, const struct ft_host_problem *problem) {
  for (int index = 0; problem->score != NULL && index < answers->row_count; index++) {
    const struct ft_row row = answers->rows[index];
    if (!isnan(answers->lse[index])) continue;
    return ft_fail(FT_E_ARGUMENT,
                   "score %s makes NaN of batch %lld head %d query %lld; allowed for a "
                   "verification: numbers and infinities",
                   problem->score->score.name, (long long)row.batch, row.head, (long long)row.i);
  }
  return FT_OK;
}

int ft_answers_make(struct ft_answers **answers, const struct ft_host_problem *problem,
                    const struct ft_row *rows, int row_count, int threads) {
  *answers = NULL;
  struct ft_answers *made = allocate(&problem->request, row_count);
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for the reference of %d rows", row_count);
  memcpy(made->rows, rows, (size_t)row_count * sizeof *rows);

  struct work work = {.problem = problem, .answers = made};
  ft_work_together(threads < row_count ? threads : row_count, answer_rows, &work);
  if (work.failed) {
    ft_answers_free(made);
    return ft_fail(FT_E_MEMORY, "no memory for reference rows of %lld keys",
                   (long long)problem->request.seqlen_k);
  }
  const int status = check_numbers(made, problem);
  if (status != FT_OK) {
    ft_answers_free(made);
    return status;
  }
  sum_up(made);
  *answers = made;
  return FT_OK;
}

/* Makes this the verdict's worst place if its ratio is the largest so far. column: of O, or
 * FT_COLUMN_LSE. */
static void blame(struct ft_comparison *comparison, double ratio, struct ft_row row, int column,
                  double is, double should) {
  if (!(ratio > comparison->error_ratio)) return;
  char what[32] = "LSE";
  if (column != FT_COLUMN_LSE) snprintf(what, sizeof what, "O[%d]", column);
  comparison->error_ratio = ratio;
  comparison->row = row;
  comparison->column = column;
  snprintf(comparison->worst, sizeof comparison->worst,
           "%s of batch %lld head %d row %lld is %.7g, not %.7g", what, (long long)row.batch,
           row.head, (long long)row.i, is, should);
}

static void judge_lse(const struct ft_answers *answers, int index, double lse,
                      struct ft_row_verdict *verdict) {
  const double should = answers->lse[index];
  verdict->lse = lse;
  verdict->lse_expected = should;
  if (isinf(should)) {
    if (lse != should && answers->ties_lse[index] == 0) verdict->lse_ratio = INFINITY;
    return;
  }
  verdict->lse_error = fabs(lse - should);
  const double floor = 1e-5 + 2e-6 * fabs(should) + answers->lse_besides[index];
  verdict->lse_allowed = 2 * answers->lse_error + floor + answers->ties_lse[index];
  verdict->lse_ratio =
      isfinite(verdict->lse_error) ? verdict->lse_error / verdict->lse_allowed : INFINITY;
}

/* The allowance of one element of a row. A row of zeros (nothing visible, all dropped) has to be
 * just that. */
static double o_allowed(const struct ft_answers *answers, int index) {
  const double largest = answers->largest[index];
  if (!(largest > 0)) return answers->ties_o[index];
  return (2 * answers->element_error + answers->besides[index]) * largest +
         ft_half_ulp(answers->dtype, largest) + answers->ties_o[index];
}

static double element_ratio(double error, double allowed) {
  if (error == 0) return 0;
  return isfinite(error) && allowed > 0 ? error / allowed : INFINITY;
}

bool ft_answers_element(const struct ft_answers *answers, int index, int column, const void *o) {
  const double should = answers->o[(size_t)index * (size_t)answers->dim + (size_t)column];
  const double error = fabs(ft_number(answers->dtype, o, column) - should);
  return element_ratio(error, o_allowed(answers, index)) <= 1;
}

void ft_answers_row(const struct ft_answers *answers, int index, const void *o, const float *lse,
                    struct ft_row_verdict *verdict) {
  const double *should = answers->o + (size_t)index * (size_t)answers->dim;
  const double allowed = o_allowed(answers, index);
  float values[FT_REFERENCE_DIM];
  ft_widen(answers->dtype, o, values, answers->dim);
  *verdict = (struct ft_row_verdict){.o = (double)values[0], .o_expected = should[0]};
  for (int d = 0; d < answers->dim; d++) {
    const double is = (double)values[d];
    const double error = fabs(is - should[d]);
    verdict->o_square += error * error;
    const double ratio = element_ratio(error, allowed);
    if (!(ratio > verdict->o_ratio)) continue;
    verdict->o_ratio = ratio;
    verdict->column = d;
    verdict->o = is;
    verdict->o_expected = should[d];
  }
  if (lse) judge_lse(answers, index, (double)*lse, verdict);
}

/* No element is wrong by itself: names the row with the largest error. */
static void blame_sum(const struct ft_answers *answers, const struct ft_comparison *worst_o,
                      struct ft_comparison *comparison) {
  const double ratio = comparison->o_error / comparison->o_allowed;
  if (!(ratio > comparison->error_ratio)) return;
  comparison->error_ratio = ratio;
  comparison->row = worst_o->row;
  comparison->column = worst_o->column;
  snprintf(comparison->worst, sizeof comparison->worst,
           "O is off by %.3g in relative L2 over %d rows, %.3g is allowed", comparison->o_error,
           answers->row_count, comparison->o_allowed);
}

void ft_answers_compare(const struct ft_answers *answers, const void *o, const float *lse,
                        struct ft_comparison *comparison) {
  *comparison = (struct ft_comparison){.o_allowed = answers->o_allowed};
  struct ft_comparison worst_o = *comparison;
  double square = 0;
  for (int index = 0; index < answers->row_count; index++) {
    const struct ft_row row = answers->rows[index];
    struct ft_row_verdict verdict;
    ft_answers_row(answers, index, ft_element(answers->dtype, o, (int64_t)index * answers->dim),
                   lse ? &lse[index] : NULL, &verdict);
    square += verdict.o_square;
    blame(&worst_o, verdict.o_ratio, row, verdict.column, verdict.o, verdict.o_expected);
    blame(comparison, verdict.o_ratio, row, verdict.column, verdict.o, verdict.o_expected);
    if (!lse) continue;
    blame(comparison, verdict.lse_ratio, row, FT_COLUMN_LSE, verdict.lse, verdict.lse_expected);
    if (isfinite(verdict.lse_expected) &&
        !(verdict.lse_ratio * comparison->lse_allowed < comparison->lse_error)) {
      comparison->lse_error = verdict.lse_error;
      comparison->lse_allowed = verdict.lse_allowed;
    }
  }
  if (answers->o_norm > 0) comparison->o_error = sqrt(square) / answers->o_norm;
  if (isnan(square)) comparison->o_error = INFINITY;
  blame_sum(answers, &worst_o, comparison);
}

int ft_reference_compare(struct ft_comparison *comparison, const struct ft_host_problem *problem,
                         const struct ft_row *rows, int row_count, const void *o, const float *lse,
                         int threads) {
  struct ft_answers *answers;
  const int status = ft_answers_make(&answers, problem, rows, row_count, threads);
  if (!answers) return status;
  ft_answers_compare(answers, o, lse, comparison);
  ft_answers_free(answers);
  return FT_OK;
}
