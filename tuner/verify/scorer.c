/* scorer.c: what the score function of a problem makes of the scores of a row, in float64.
 * in -> out: row, key, scale q . k -> score, whether the key is visible, d score / ds. */
#include "tuner/verify/scorer.h"

#include <math.h>
#include <stdlib.h>

#include "generator/score/rounding.h"
#include "generator/status.h"

int ft_scorer_open(struct ft_scorer *scorer, const struct ft_host_problem *problem) {
  *scorer = (struct ft_scorer){.problem = problem, .known = problem->score};
  if (scorer->known == NULL) return FT_OK;
  const struct ft_score *const score = &scorer->known->score;
  scorer->inputs = problem->score_inputs;
  const struct ft_derivatives *const derivatives = &scorer->known->derivatives;
  int roots[3 + 2 * FT_DERIVATIVES] = {score->score, score->visible, scorer->known->slope};
  int count = problem->request.pass == FT_BACKWARD ? 3 : 2;
  for (int n = 0; problem->request.score_gradients != 0 && n < derivatives->count; ++n) {
    roots[count++] = derivatives->others[n].leaf;
    roots[count++] = derivatives->others[n].node;
  }
  FT_TRY(ft_interpreter_open(&scorer->interpreter, score, roots, count));
  int status = ft_ties_open(&scorer->ties, &scorer->interpreter);
  if (status == FT_OK && problem->request.dtype == FT_FP32) {
    scorer->errors = calloc((size_t)score->expression.count, sizeof(double));
    if (scorer->errors == NULL)
      status = ft_fail(FT_E_MEMORY, "no memory for errors of score %s", score->name);
  }
  if (status != FT_OK) ft_scorer_close(scorer);
  return status;
}

void ft_scorer_close(struct ft_scorer *scorer) {
  ft_interpreter_close(&scorer->interpreter);
  ft_ties_close(&scorer->ties);
  free(scorer->errors);
  scorer->errors = NULL;
}

void ft_scorer_enter(struct ft_scorer *scorer, struct ft_row row) {
  const struct ft_request *const request = &scorer->problem->request;
  double *const symbols = scorer->inputs.symbols;
  symbols[FT_SYMBOL_B] = (double)row.batch;
  symbols[FT_SYMBOL_H] = row.head;
  const int kv_head = row.head / (request->heads_q / request->heads_kv);
  symbols[FT_SYMBOL_KV] = kv_head;
  symbols[FT_SYMBOL_I] = (double)row.i;
  if (!scorer->problem->sequences) return;
  symbols[FT_SYMBOL_NQ] = (double)scorer->problem->sequences->q.used[row.batch];
  symbols[FT_SYMBOL_NK] = (double)scorer->problem->sequences->k.used[row.batch];
}

/* By the values that the interpreter has. */
static struct ft_scored scored_now(struct ft_scorer *scorer) {
  const struct ft_known_score *const known = scorer->known;
  const struct ft_interpreter *const interpreter = &scorer->interpreter;
  const double score = ft_interpreter_value(interpreter, known->score.score);
  const double rounding =
      scorer->errors ? ft_score_rounding(interpreter, 0, scorer->errors, known->score.score) : 0;
  const bool visible = ft_interpreter_value(interpreter, known->score.visible) != 0;
  return (struct ft_scored){.score = score,
                            .slope = ft_interpreter_value(interpreter, known->slope),
                            .rounding = rounding,
                            .visible = visible && score != -HUGE_VAL};
}

struct ft_scored ft_scorer_key(struct ft_scorer *scorer, int64_t j, double s) {
  if (scorer->known == NULL) return (struct ft_scored){.score = s, .slope = 1, .visible = true};
  scorer->inputs.symbols[FT_SYMBOL_J] = (double)j;
  scorer->inputs.symbols[FT_SYMBOL_S] = s;
  ft_interpret(&scorer->interpreter, &scorer->inputs);
  return scored_now(scorer);
}

struct ft_scored ft_scorer_both(struct ft_scorer *scorer, int64_t j, double s, double plain_s,
                                double of_s, struct ft_scored *plain) {
  *plain = ft_scorer_key(scorer, j, plain_s);
  const struct ft_scored exact = ft_scorer_key(scorer, j, s);
  if (!ft_scorer_decides(scorer)) return exact;
  if (ft_ties_find(&scorer->ties, &scorer->interpreter, of_s) == 0) return exact;
  scorer->inputs.symbols[FT_SYMBOL_S] = plain_s;
  *plain = ft_scorer_other(scorer, 0);
  scorer->inputs.symbols[FT_SYMBOL_S] = s;
  return ft_scorer_other(scorer, 0);
}

int ft_scorer_others(const struct ft_scorer *scorer) {
  return (1 << scorer->ties.count) - 1;
}

struct ft_scored ft_scorer_other(struct ft_scorer *scorer, int n) {
  ft_ties_interpret(&scorer->ties, &scorer->interpreter, &scorer->inputs, n);
  return scored_now(scorer);
}

double ft_scorer_derivative(const struct ft_scorer *scorer, int n) {
  return ft_interpreter_value(&scorer->interpreter, scorer->known->derivatives.others[n].node);
}

int ft_derivative_bit(const struct ft_known_score *known, int n) {
  const struct ft_node *const leaf =
      ft_node(&known->score.expression, known->derivatives.others[n].leaf);
  return leaf->operation == FT_OP_READ ? leaf->number : FT_SCORE_TENSORS + leaf->number;
}

/* Elements from index to index of a gradient; 0 along a dimension that is broadcast. Returns how
 * many elements there are. */
static int64_t strides_of(const struct ft_known_score *known, const struct ft_score_inputs *inputs,
                          int bit, int64_t strides[FT_SCORE_DIMS]) {
  int64_t count = 1;
  const int dims = bit < FT_SCORE_TENSORS ? known->score.tensors[bit].dims : 0;
  for (int dim = dims - 1; dim >= 0; --dim) {
    strides[dim] = inputs->tensors[bit].strides[dim] == 0 ? 0 : count;
    if (strides[dim] != 0) count *= inputs->tensors[bit].extents[dim];
  }
  return count;
}

int64_t ft_gradient_count(const struct ft_known_score *known, const struct ft_score_inputs *inputs,
                          int bit) {
  int64_t strides[FT_SCORE_DIMS];
  return strides_of(known, inputs, bit, strides);
}

int64_t ft_scorer_place(const struct ft_scorer *scorer, int n) {
  const struct ft_node *const leaf =
      ft_node(&scorer->known->score.expression, scorer->known->derivatives.others[n].leaf);
  if (leaf->operation != FT_OP_READ) return 0;
  const struct ft_captured *const tensor = &scorer->inputs.tensors[leaf->number];
  int64_t strides[FT_SCORE_DIMS] = {0}, place = 0;
  (void)strides_of(scorer->known, &scorer->inputs, leaf->number, strides);
  for (int dim = 0; dim < leaf->operand_count; ++dim) {
    const double index = ft_interpreter_value(&scorer->interpreter, leaf->operands[dim]);
    place += (int64_t)fmax(fmin(index, (double)(tensor->extents[dim] - 1)), 0) * strides[dim];
  }
  return place;
}
