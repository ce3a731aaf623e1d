/* gradient_answers.c: what chosen rows of dQ, dK, dV must be, how far off a kernel may be, the
 * verdict.
 * in -> out: host problem -> float64 rows, allowances; a kernel's rows -> verdict.
 *
 * The allowance is twice the error of the plain computation on the same rows, over their yardsticks
 * (gradients.h), plus half a unit in the last place of the row's largest value for rounding the
 * result, plus a floor for what the plain computation gets exactly right. The floor is 2^-20 of the
 * yardstick. Tensor cores truncate where they accumulate S and dP, each step of 16 by up to 2^-22
 * of the largest partial sum, and delta is summed in another order than dP. Where the two cancel,
 * only that error is left. Of fp32 the floor is 2^-22: a product is made of three of TF32, each
 * operand to within 2^-22 of itself, and sums of 16 are accumulated outside the tensor core. Twice
 * what the row may lose by subnormal weights (gradients.h) is allowed, too, and how far ties of its
 * score may move it.
 *
 * Of fp32 the gradient itself may err by 2^-20 besides. P is exp2(x), where x is a score less LSE
 * in units of log2: LSE log2(e) is rounded by up to 2^-21 (below 16), which is 2^-21.5 of P, and
 * ex2.approx errs by 2^-22. Where all scores and LSE are alike, so is the error of all P. */

#include "tuner/verify/gradient_answers.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "generator/status.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/scorer.h"
#include "tuner/verify/threads.h"

static const double FLOOR = 0x1p-20, FLOOR_OF_FP32 = 0x1p-22, WEIGHTS_OF_FP32 = 0x1p-20;
/* GPUs take a P below 2^-126 for 0. A gradient sums fewer than 2^16 of them, times inputs below
 * 2^10. */
static const double FLUSHED = 0x1p-100;

/* The chosen rows of one gradient. */
struct chosen {
  int count, dim;
  struct ft_row *rows;
  double *values;                       /* [row][dim] */
  double *yardstick, *largest;          /* [row]; largest |value| */
  double *subnormal, *ties;             /* [row] */
  double *plain_square, *plain_element; /* [row]: squared and largest error of the plain one */
  double norm, allowed;                 /* L2 over all rows */
  double element_error;                 /* of the plain one, over the yardstick */
};

struct ft_gradient_answers {
  enum ft_dtype dtype;      /* of the gradients */
  double floor, of_weights; /* relative to the yardstick, to the gradient */
  struct chosen of[FT_GRADIENTS];
};

/* ---- memory ---- */

static void free_chosen(struct chosen *chosen) {
  free(chosen->rows);
  free(chosen->values);
  free(chosen->yardstick);
  free(chosen->largest);
  free(chosen->subnormal);
  free(chosen->ties);
  free(chosen->plain_square);
  free(chosen->plain_element);
}

void ft_gradient_answers_free(struct ft_gradient_answers *answers) {
  if (!answers) return;
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++) free_chosen(&answers->of[gradient]);
  free(answers);
}

static int allocate(struct chosen *chosen, int count, int dim) {
  const size_t rows = (size_t)count;
  *chosen = (struct chosen){.count = count,
                            .dim = dim,
                            .rows = calloc(rows, sizeof *chosen->rows),
                            .values = calloc(rows * (size_t)dim, sizeof(double)),
                            .yardstick = calloc(rows, sizeof(double)),
                            .largest = calloc(rows, sizeof(double)),
                            .subnormal = calloc(rows, sizeof(double)),
                            .ties = calloc(rows, sizeof(double)),
                            .plain_square = calloc(rows, sizeof(double)),
                            .plain_element = calloc(rows, sizeof(double))};
  if (chosen->rows && chosen->values && chosen->yardstick && chosen->largest && chosen->subnormal &&
      chosen->ties && chosen->plain_square && chosen->plain_element)
    return FT_OK;
  return ft_fail(FT_E_MEMORY, "no memory for the reference of %d rows of gradients", count);
}

/* ---- which rows ---- */

static int choose(struct chosen *chosen, const struct ft_host_problem *problem,
                  enum ft_gradient gradient, int wanted, uint64_t seed) {
  const int64_t all = ft_gradient_rows_used(problem, gradient);
  const int count = all < wanted ? (int)all : wanted;
  FT_TRY(allocate(chosen, count, ft_gradient_dim(&problem->request, gradient)));
  for (int n = 0; n < count; n++) {
    int64_t index = n;
    if (count < all && n == 1) index = all - 1;
    if (count < all && n > 1) index = (int64_t)(ft_random_next(&seed) % (uint64_t)all);
    chosen->rows[n] = ft_gradient_row_used(problem, gradient, index);
  }
  return FT_OK;
}

/* ---- the rows, by several threads ---- */

struct work {
  const struct ft_host_problem *problem;
  const struct ft_query_terms *terms;
  struct ft_gradient_answers *answers;
  atomic_int next;   /* the next row: those of dQ first, then those of dK and dV together */
  atomic_int failed; /* there was no memory for a thread's scorer */
};

static void keep(struct chosen *chosen, int index, const struct ft_gradient_row *row) {
  double *const values = chosen->values + (size_t)index * (size_t)chosen->dim;
  chosen->yardstick[index] = row->yardstick;
  chosen->subnormal[index] = row->subnormal;
  chosen->ties[index] = row->ties;
  for (int d = 0; d < chosen->dim; d++) {
    const double error = fabs(row->plain[d] - row->exact[d]);
    values[d] = row->exact[d];
    chosen->largest[index] = fmax(chosen->largest[index], fabs(row->exact[d]));
    chosen->plain_square[index] += error * error;
    chosen->plain_element[index] = fmax(chosen->plain_element[index], error);
  }
}

static void *answer_rows(void *payload) {
  struct work *work = payload;
  struct chosen *const of = work->answers->of;
  const int queries = of[FT_GRADIENT_Q].count, all = queries + of[FT_GRADIENT_K].count;
  struct ft_gradient_row first, second;
  struct ft_scorer scorer;
  if (ft_scorer_open(&scorer, work->problem) != FT_OK) {
    work->failed = 1;
    return NULL;
  }
  for (int n = work->next++; n < all; n = work->next++) {
    if (n < queries) {
      ft_query_gradient(work->problem, &scorer, work->terms, of[FT_GRADIENT_Q].rows[n], &first);
      keep(&of[FT_GRADIENT_Q], n, &first);
    } else {
      const int key = n - queries;
      ft_key_gradients(work->problem, &scorer, work->terms, of[FT_GRADIENT_K].rows[key], &first,
                       &second);
      keep(&of[FT_GRADIENT_K], key, &first);
      keep(&of[FT_GRADIENT_V], key, &second);
    }
  }
  ft_scorer_close(&scorer);
  return NULL;
}

/* ---- allowances ---- */

/* In row order, so that the allowances do not depend on which thread did what. */
static void sum_up(const struct ft_gradient_answers *answers, struct chosen *chosen) {
  double square = 0, plain_square = 0, yard_square = 0, subnormal_square = 0, ties_square = 0;
  for (int n = 0; n < chosen->count; n++) {
    const double *values = chosen->values + (size_t)n * (size_t)chosen->dim;
    for (int d = 0; d < chosen->dim; d++) square += values[d] * values[d];
    plain_square += chosen->plain_square[n];
    yard_square += chosen->yardstick[n] * chosen->yardstick[n] * chosen->dim;
    ties_square += chosen->ties[n] * chosen->ties[n] * chosen->dim;
    subnormal_square += chosen->subnormal[n] * chosen->subnormal[n] * chosen->dim;
    if (chosen->yardstick[n] > 0)
      chosen->element_error =
          fmax(chosen->element_error, chosen->plain_element[n] / chosen->yardstick[n]);
  }
  /* Rounding the result alone errs by about half a unit roundoff in the mean. */
  chosen->norm = sqrt(square);
  chosen->allowed = 2 * (sqrt(plain_square) + sqrt(subnormal_square)) +
                    (0.5 * ft_half_ulp(answers->dtype, 1.0) + answers->of_weights) * chosen->norm +
                    answers->floor * sqrt(yard_square) + sqrt(ties_square) +
                    FLUSHED * sqrt((double)chosen->count * chosen->dim);
}

/* The allowance of one element of a row. A row that nothing contributes to has to be zero, unless
 * ties make something of it. */
static double element_allowed(const struct ft_gradient_answers *answers,
                              const struct chosen *chosen, int index) {
  const double yardstick = chosen->yardstick[index], largest = chosen->largest[index];
  if (!(yardstick > 0)) return chosen->ties[index];
  const double rounding = largest > 0 ? ft_half_ulp(answers->dtype, largest) : 0;
  return (2 * chosen->element_error + answers->floor) * yardstick + 2 * chosen->subnormal[index] +
         answers->of_weights * largest + rounding + chosen->ties[index] + FLUSHED;
}

/* Where a score makes NaN there is nothing to compare: see check_numbers of tuner/verify/answers.c.
 */
static int check_numbers(const struct ft_gradient_answers *answers,
                         const struct ft_host_problem *problem) {
  for (int g = 0; problem->score != NULL && g < FT_GRADIENTS; g++) {
    const enum ft_gradient gradient = (enum ft_gradient)g;
    const struct chosen *chosen = &answers->of[g];
    for (size_t n = 0; n < (size_t)chosen->count * (size_t)chosen->dim; n++) {
      const struct ft_row row = chosen->rows[n / (size_t)chosen->dim];
      if (!isnan(chosen->values[n])) continue;
      return ft_fail(FT_E_ARGUMENT,
                     "score %s makes NaN of %s of batch %lld head %d %s %lld; allowed for a "
                     "verification: numbers and infinities",
                     problem->score->score.name, ft_gradient_name(gradient), (long long)row.batch,
                     row.head, ft_gradient_unit(gradient), (long long)row.i);
    }
  }
  return FT_OK;
}

int ft_gradient_answers_make(struct ft_gradient_answers **answers,
                             const struct ft_host_problem *problem, int rows, uint64_t seed,
                             int threads) {
  const struct ft_request *r = &problem->request;
  struct ft_query_terms *terms = NULL;
  int status = FT_OK;
  *answers = NULL;
  struct ft_gradient_answers *made = calloc(1, sizeof *made);
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for the reference of gradients");
  made->dtype = ft_output_dtype(r);
  made->floor = r->dtype == FT_FP32 ? FLOOR_OF_FP32 : FLOOR;
  made->of_weights = r->dtype == FT_FP32 ? WEIGHTS_OF_FP32 : 0;
  FT_CHECK(ft_query_terms_make(&terms, problem));
  FT_CHECK(choose(&made->of[FT_GRADIENT_Q], problem, FT_GRADIENT_Q, rows, seed));
  FT_CHECK(choose(&made->of[FT_GRADIENT_K], problem, FT_GRADIENT_K, rows, ~seed));
  FT_CHECK(
      choose(&made->of[FT_GRADIENT_V], problem, FT_GRADIENT_V, rows, ~seed)); /* the same keys */
  struct work work = {.problem = problem, .terms = terms, .answers = made};
  ft_work_together(threads, answer_rows, &work);
  if (work.failed) FT_CHECK(ft_fail(FT_E_MEMORY, "no memory for the score of the reference"));
  FT_CHECK(check_numbers(made, problem));
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++) sum_up(made, &made->of[gradient]);
  *answers = made;
done:
  free(terms);
  if (status != FT_OK) ft_gradient_answers_free(made);
  return status;
}

int ft_gradient_answers_rows(const struct ft_gradient_answers *answers, enum ft_gradient gradient,
                             const struct ft_row **rows) {
  *rows = answers->of[gradient].rows;
  return answers->of[gradient].count;
}

/* ---- the verdict ---- */

static double ratio_of(double error, double allowed) {
  if (error == 0) return 0;
  return isfinite(error) && allowed > 0 ? error / allowed : INFINITY;
}

double ft_gradient_answers_row(const struct ft_gradient_answers *answers, enum ft_gradient gradient,
                               int index, const void *values, int *column, double *should) {
  const struct chosen *chosen = &answers->of[gradient];
  const double *expected = chosen->values + (size_t)index * (size_t)chosen->dim;
  const double allowed = element_allowed(answers, chosen, index);
  float own[FT_REFERENCE_DIM];
  double worst = -1;
  ft_widen(answers->dtype, values, own, chosen->dim);
  for (int d = 0; d < chosen->dim; d++) {
    const double error = fabs((double)own[d] - expected[d]);
    const double ratio = ratio_of(error, allowed);
    if (!(ratio > worst)) continue;
    worst = ratio;
    *column = d;
    *should = expected[d];
  }
  return worst;
}

void ft_gradient_answers_columns(const struct ft_gradient_answers *answers,
                                 enum ft_gradient gradient, int index, const void *values,
                                 bool *columns) {
  const struct chosen *chosen = &answers->of[gradient];
  const double *expected = chosen->values + (size_t)index * (size_t)chosen->dim;
  const double allowed = element_allowed(answers, chosen, index);
  for (int d = 0; d < chosen->dim; d++) {
    const double error = fabs(ft_number(answers->dtype, values, d) - expected[d]);
    columns[d] = columns[d] || !(ratio_of(error, allowed) <= 1);
  }
}

static void blame(struct ft_comparison *comparison, double ratio, enum ft_gradient gradient,
                  struct ft_row row, int column, double is, double should) {
  if (!(ratio > comparison->error_ratio)) return;
  comparison->error_ratio = ratio;
  comparison->row = row;
  comparison->column = column;
  snprintf(comparison->worst, sizeof comparison->worst,
           "%s[%d] of batch %lld head %d %s %lld is %.7g, not %.7g", ft_gradient_name(gradient),
           column, (long long)row.batch, row.head, ft_gradient_unit(gradient), (long long)row.i, is,
           should);
}

static double squared_error(const struct ft_gradient_answers *answers, const struct chosen *chosen,
                            int index, const void *values) {
  const double *expected = chosen->values + (size_t)index * (size_t)chosen->dim;
  float own[FT_REFERENCE_DIM];
  double square = 0;
  ft_widen(answers->dtype, values, own, chosen->dim);
  for (int d = 0; d < chosen->dim; d++) {
    const double error = (double)own[d] - expected[d];
    square += error * error;
  }
  return square;
}

/* The error of all rows together, relative to their norm unless that is 0. */
static void judge_sum(const struct chosen *chosen, enum ft_gradient gradient, double square,
                      struct ft_comparison *comparison) {
  const double error = isfinite(square) ? sqrt(square) : INFINITY;
  const double unit = chosen->norm > 0 ? chosen->norm : 1;
  comparison->gradients[gradient].error = error / unit;
  comparison->gradients[gradient].allowed = chosen->allowed / unit;
  const double ratio = ratio_of(error, chosen->allowed);
  if (!(ratio > comparison->error_ratio)) return;
  comparison->error_ratio = ratio;
  snprintf(comparison->worst, sizeof comparison->worst,
           "%s is off by %.3g in L2 over %d rows, %.3g is allowed", ft_gradient_name(gradient),
           error, chosen->count, chosen->allowed);
}

void ft_gradient_answers_compare(const struct ft_gradient_answers *answers,
                                 void *const values[FT_GRADIENTS],
                                 struct ft_comparison *comparison) {
  *comparison = (struct ft_comparison){.column = FT_COLUMN_NONE};
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++) {
    const struct chosen *chosen = &answers->of[gradient];
    double square = 0;
    for (int n = 0; n < chosen->count; n++) {
      const void *row = ft_element(answers->dtype, values[gradient], (int64_t)n * chosen->dim);
      int column = 0;
      double should = 0;
      const double ratio =
          ft_gradient_answers_row(answers, (enum ft_gradient)gradient, n, row, &column, &should);
      square += squared_error(answers, chosen, n, row);
      blame(comparison, ratio, (enum ft_gradient)gradient, chosen->rows[n], column,
            ft_number(answers->dtype, row, column), should);
    }
    judge_sum(chosen, (enum ft_gradient)gradient, square, comparison);
  }
}
