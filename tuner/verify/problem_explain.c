/* problem_explain.c: what is wrong with a wrong result.
 * in -> out: verdict + runs of the kernel, the same and on other V -> lines of text. */
#include "tuner/verify/problem_explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/answers.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_memory.h"
#include "tuner/verify/problem_outputs.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/problem_tell.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"
#include "tuner/verify/weights.h"
#include "tuner/verify/weights_text.h"

enum { ROWS_AROUND = 64, OTHERS_MOST = 4 * ROWS_AROUND };

struct explained {
  struct ft_problem *problem;
  struct ft_text *text;
  struct ft_row row;
  struct ft_answers *answers; /* answers that have the row, at `index` */
  int index;
  struct ft_answers *own; /* answers for this row alone, if it is none of those checked */
  const void *o;          /* the row as the kernel wrote it */
  const float *lse;       /* or NULL */
  bool has_other;         /* the row holds what another should hold: */
  struct ft_row other;
  struct ft_row_verdict verdict;
};

/* ---- which row ------------------------------------------------------------------------------- */

static void judge_checked(const struct ft_problem *problem, int index,
                          struct ft_row_verdict *verdict) {
  const int dim = problem->options.request.head_dim_v;
  const float *lse = problem->options.want_lse ? &problem->lse_rows[index] : NULL;
  const enum ft_dtype dtype = ft_output_dtype(&problem->options.request);
  ft_answers_row(problem->answers, index, ft_element(dtype, problem->o_rows, (int64_t)index * dim),
                 lse, verdict);
}

static bool same_row(struct ft_row a, struct ft_row b) {
  return a.batch == b.batch && a.head == b.head && a.i == b.i;
}

/* The row of the verdict. If only its LSE is wrong, a row whose O is wrong says more. */
static struct ft_row choose_row(const struct ft_problem *problem) {
  struct ft_row row = problem->verdict.row;
  if (problem->verdict.column != FT_COLUMN_LSE) return row;
  double worst = 1;
  for (int n = 0; n < problem->row_count; n++) {
    struct ft_row_verdict verdict;
    judge_checked(problem, n, &verdict);
    if (!(verdict.o_ratio > worst)) continue;
    worst = verdict.o_ratio;
    row = problem->rows[n];
  }
  return row;
}

static int find_row(struct explained *it) {
  struct ft_problem *problem = it->problem;
  const struct ft_request *request = &problem->options.request;
  it->row = choose_row(problem);
  it->answers = problem->answers;
  while (it->index < problem->row_count && !same_row(problem->rows[it->index], it->row)) {
    it->index += 1;
  }
  if (it->index == problem->row_count) {
    FT_TRY(ft_answers_make(&it->own, &problem->host, &it->row, 1, 1));
    it->answers = it->own;
    it->index = 0;
  }
  const struct ft_row row = it->row;
  it->o = ft_element(ft_output_dtype(request), problem->o_image + FT_FENCE_BYTES,
                     ft_shape_offset(&problem->shapes[FT_O], row.batch, row.i, row.head));
  if (problem->options.want_lse) {
    it->lse = (const float *)(const void *)(problem->lse_image + FT_FENCE_BYTES) +
              (row.batch * request->heads_q + row.head) * request->seqlen_q + row.i;
  }
  ft_answers_row(it->answers, it->index, it->o, it->lse, &it->verdict);
  return FT_OK;
}

/* ---- what came out --------------------------------------------------------------------------- */

static void tell_row(struct ft_text *text, struct ft_row row) {
  ft_text_add(text, "[batch %lld, row %lld, head %d", (long long)row.batch, (long long)row.i,
              row.head);
}

/* "12 of 4096 rows checked are wrong: rows 32 to 47 of batch 0, head 1" */
static void tell_count(const struct explained *it) {
  const struct ft_problem *problem = it->problem;
  struct ft_row first = {0}, last = {0};
  int wrong = 0;
  bool one_batch = true, one_head = true;
  for (int n = 0; n < problem->row_count; n++) {
    struct ft_row_verdict verdict;
    judge_checked(problem, n, &verdict);
    if (verdict.o_ratio <= 1 && verdict.lse_ratio <= 1) continue;
    const struct ft_row row = problem->rows[n];
    if (wrong++ == 0) first = last = row;
    one_batch = one_batch && row.batch == first.batch;
    one_head = one_head && row.head == first.head;
    if (row.i < first.i) first.i = row.i;
    if (row.i > last.i) last.i = row.i;
  }
  ft_text_add(it->text, " (%d of %d rows checked %s wrong", wrong, problem->row_count,
              wrong == 1 ? "is" : "are");
  if (wrong > 1) {
    ft_text_add(it->text, first.i == last.i ? ": row %lld" : ": between row %lld and row %lld",
                (long long)first.i, (long long)last.i);
    if (one_batch) ft_text_add(it->text, ", batch %lld", (long long)first.batch);
    if (one_head) ft_text_add(it->text, ", head %d", first.head);
  }
  ft_text_add(it->text, ").\n");
}

/* Names the wrong columns of this row. If the weights are wrong, most columns are, and it says
 * nothing. */
static void tell_columns(const struct explained *it) {
  const int dim = it->problem->options.request.head_dim_v;
  bool wrong[FT_REFERENCE_DIM];
  int count = 0;
  for (int c = 0; c < dim; c++) {
    wrong[c] = !ft_answers_element(it->answers, it->index, c, it->o);
    count += wrong[c];
  }
  if (count == 0 || count > dim / 2) return;
  ft_text_add(it->text, "; of this row ");
  ft_tell_runs(it->text, "column", wrong, NULL, dim);
  ft_text_add(it->text, count == 1 ? " alone is wrong" : " are wrong");
}

static void tell_o(const struct explained *it) {
  const struct ft_row_verdict *verdict = &it->verdict;
  if (verdict->o_ratio <= 1) { /* no element is wrong by itself, only their sum */
    ft_text_add(it->text, "%s. The largest error is in ", it->problem->verdict.worst);
  }
  ft_text_add(it->text, "O");
  tell_row(it->text, it->row);
  ft_text_add(it->text, ", column %d] ", verdict->column);
  if (ft_is_poison(&it->problem->shapes[FT_O], it->o, verdict->column)) {
    ft_text_add(it->text, "was not written");
  } else {
    ft_text_add(it->text, "is %.4g", verdict->o);
  }
  ft_text_add(it->text, ", expected %.4g", verdict->o_expected);
  tell_columns(it);
  tell_count(it);
}

/* exp(LSE) is the sum that O was divided by. So if O is right, LSE went wrong after the division.
 */
static void tell_lse_alone(const struct explained *it) {
  const struct ft_row_verdict *verdict = &it->verdict;
  ft_text_add(it->text, "LSE");
  tell_row(it->text, it->row);
  ft_text_add(it->text, "] is %.7g, expected %.7g", verdict->lse, verdict->lse_expected);
  tell_count(it);
  ft_text_add(it->text, "O is right: the fault is in LSE alone");
  const double factor = exp(verdict->lse - verdict->lse_expected);
  if (isfinite(factor)) ft_text_add(it->text, ": it means a sum %.4g times the right one", factor);
  ft_text_add(it->text, ".\n");
}

/* ---- comparisons with other rows, other runs ------------------------------------------------- */

/* Rows that see one key have its V in common, so equal rows say nothing. */
static int sees_several(const struct ft_problem *problem, struct ft_row row, bool *several) {
  struct ft_weights weights;
  FT_TRY(ft_weights_make(&weights, problem, row));
  int64_t kept = 0;
  for (int64_t j = 0; j < weights.count; j++) kept += weights.expected[j] > weights.allowed[j];
  *several = kept > 1;
  ft_weights_free(&weights);
  return FT_OK;
}

/* Rows that a kernel may have mistaken for this one: near it, or the same of other heads and
 * batches. */
static int rows_around(const struct explained *it, struct ft_row rows[OTHERS_MOST]) {
  const struct ft_request *request = &it->problem->options.request;
  const struct ft_row row = it->row;
  int count = 0;
  for (int64_t i = row.i - ROWS_AROUND; i <= row.i + ROWS_AROUND; i++) {
    if (i < 0 || i >= request->seqlen_q || i == row.i) continue;
    rows[count++] = (struct ft_row){row.batch, row.head, i};
  }
  for (int head = 0; head < request->heads_q && count < OTHERS_MOST; head++) {
    if (head != row.head) rows[count++] = (struct ft_row){row.batch, head, row.i};
  }
  for (int64_t batch = 0; batch < request->batch && count < OTHERS_MOST; batch++) {
    if (batch != row.batch) rows[count++] = (struct ft_row){batch, row.head, row.i};
  }
  return count;
}

static int find_other_row(struct explained *it) {
  struct ft_row rows[OTHERS_MOST];
  const int count = rows_around(it, rows);
  struct ft_answers *answers;
  if (count == 0) return FT_OK;
  FT_TRY(ft_answers_make(&answers, &it->problem->host, rows, count, 1));
  for (int n = 0; n < count && !it->has_other; n++) {
    struct ft_row_verdict verdict;
    ft_answers_row(answers, n, it->o, NULL, &verdict);
    it->has_other = verdict.o_ratio <= 1;
    it->other = rows[n];
  }
  ft_answers_free(answers);
  return FT_OK;
}

static int tell_if_another_row(struct explained *it) {
  const struct ft_problem *problem = it->problem;
  const int dim = problem->options.request.head_dim_v;
  const enum ft_dtype dtype = ft_output_dtype(&problem->options.request);
  bool zero = true;
  for (int c = 0; c < dim; c++) zero = zero && ft_number(dtype, it->o, c) == 0;
  if (zero) {
    ft_text_add(it->text, "All of this row is 0.\n");
    return FT_OK;
  }
  FT_TRY(find_other_row(it));
  if (it->has_other) FT_TRY(sees_several(problem, it->other, &it->has_other));
  if (!it->has_other) return FT_OK;
  ft_text_add(it->text, "This row holds what O");
  tell_row(it->text, it->other);
  ft_text_add(it->text, "] should be.\n");
  return FT_OK;
}

static int tell_if_not_repeatable(const struct explained *it, struct ft_runner *runner) {
  const int dim = it->problem->options.request.head_dim_v;
  const enum ft_dtype dtype = ft_output_dtype(&it->problem->options.request);
  float again[FT_REFERENCE_DIM]; /* room for elements of any dtype */
  FT_TRY(ft_weights_run(it->problem, runner, it->row, again));
  for (int c = 0; c < dim; c++) {
    const double first = ft_number(dtype, it->o, c), second = ft_number(dtype, again, c);
    if (first == second) continue;
    ft_text_add(it->text,
                "A second run gives other numbers (column %d: %.4g, then %.4g), as a race does.\n",
                c, first, second);
    break;
  }
  return FT_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

static void tell_right(const struct explained *it, const struct ft_weights *weights) {
  double largest = 0;
  int64_t looked = 0;
  for (int64_t j = 0; j < weights->count; j++) {
    if (!weights->looked[j]) continue;
    looked += 1;
    largest = fmax(largest, fabs(weights->used[j] - weights->expected[j]));
  }
  ft_text_add(it->text, "The weights of ");
  if (looked == weights->count) {
    ft_text_add(it->text, "all keys");
  } else {
    ft_tell_runs(it->text, "key", weights->looked, NULL, weights->count);
    ft_text_add(it->text, ", the only ones measured,");
  }
  ft_text_add(it->text, " are right to %.1g", largest);
  if (looked == weights->count) {
    ft_text_add(it->text, ": the fault is in P V or in writing O");
  }
  ft_text_add(it->text, ".\n");
}

/* If a key's weight is right when measured in another column of V, the weight is right. */
static void tell_wrong_columns(const struct explained *it, const struct ft_weights *weights) {
  const int dim = it->problem->options.request.head_dim_v;
  bool wrong[FT_REFERENCE_DIM] = {false};
  for (int64_t j = 0; j < weights->count; j++) {
    if (ft_weights_wrong(weights, j)) wrong[(j - weights->begin) % dim] = true;
  }
  ft_text_add(it->text, "The weights are right, but do not reach ");
  ft_tell_runs(it->text, "column", wrong, NULL, dim);
  ft_text_add(it->text, " of O: the fault is in P V or in writing O.\n");
}

static int tell_if_weights_of_other(const struct explained *it, const struct ft_weights *weights) {
  struct ft_weights other;
  if (!it->has_other) return FT_OK;
  FT_TRY(ft_weights_make(&other, it->problem, it->other));
  bool same = true;
  for (int64_t j = 0; same && j < weights->count; j++) {
    other.used[j] = weights->used[j];
    other.looked[j] = weights->looked[j];
    same = !ft_weights_wrong(&other, j);
  }
  if (same) ft_text_add(it->text, "These are the weights of that other row, too.\n");
  ft_weights_free(&other);
  return FT_OK;
}

static int tell_weights(const struct explained *it, struct ft_runner *runner) {
  struct ft_weights weights;
  FT_TRY(ft_weights_make(&weights, it->problem, it->row));
  int status;
  FT_CHECK(ft_weights_measure(&weights, it->problem, runner));
  const int64_t worst = ft_weights_worst(&weights);
  if (worst < 0) {
    tell_right(it, &weights);
    goto done;
  }
  double elsewhere;
  runner->left += 1; /* the run that ft_problem_explain has kept for this */
  FT_CHECK(ft_weights_elsewhere(&weights, it->problem, runner, worst, &elsewhere));
  if (fabs(elsewhere - weights.expected[worst]) <= weights.allowed[worst]) {
    tell_wrong_columns(it, &weights);
  } else {
    ft_weights_tell(&weights, it->problem, it->text);
    FT_CHECK(tell_if_weights_of_other(it, &weights));
  }
done:
  ft_weights_free(&weights);
  return status;
}

static int restore(struct ft_problem *problem) {
  FT_TRY(ft_session_enter(problem->session));
  const int status = ft_problem_upload(problem, FT_V, problem->dense[FT_V]);
  ft_session_leave(problem->session);
  return status == FT_OK ? ft_problem_poison(problem, NULL) : status;
}

static bool unwritten(const struct explained *it) {
  const int dim = it->problem->options.request.head_dim_v;
  int poisoned = 0;
  for (int c = 0; c < dim; c++) poisoned += ft_is_poison(&it->problem->shapes[FT_O], it->o, c);
  return poisoned == dim;
}

static int explain(struct explained *it, struct ft_runner *runner) {
  FT_TRY(find_row(it));
  if (it->problem->verdict.column == FT_COLUMN_LSE && it->verdict.o_ratio <= 1) {
    tell_lse_alone(it);
    return FT_OK;
  }
  tell_o(it);
  if (unwritten(it)) return FT_OK;
  FT_TRY(tell_if_another_row(it));
  FT_TRY(tell_if_not_repeatable(it, runner));
  const int status = tell_weights(it, runner);
  const int restored = restore(it->problem);
  return status == FT_OK ? restored : status;
}

int ft_problem_explain(struct ft_problem *problem,
                       int (*run)(void *payload, const fatune_arguments *arguments), void *payload,
                       struct ft_text *text) {
  struct ft_runner runner = {run, payload, FT_EXPLAIN_RUNS - 1};
  struct explained it = {.problem = problem, .text = text};
  int status = FT_OK;
  if (!problem->answers && !problem->gradient_answers) {
    return ft_fail(FT_E_ARGUMENT, "a problem that was not verified cannot be explained");
  }
  if (problem->verdict.error_ratio <= 1) {
    ft_text_add(text, "The result is right.\n");
  } else if (problem->gradient_answers) {
    status = ft_problem_tell_gradients(problem, text);
  } else if (problem->verdict.column == FT_COLUMN_NONE) {
    ft_text_add(text, "The kernel %s.\n", problem->verdict.worst);
  } else if (problem->options.request.ragged) {
    ft_text_add(text, "%s\n", problem->verdict.worst);
  } else {
    status = explain(&it, &runner);
  }
  ft_answers_free(it.own);
  return status == FT_OK ? ft_text_status(text) : status;
}
