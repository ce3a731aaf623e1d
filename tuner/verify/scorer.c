/* scorer.c: what the score function of a problem makes of the scores of a row, in float64.
 * in -> out: row, key, scale q . k -> score, whether the key is visible, d score / ds. */
#include "tuner/verify/scorer.h"

#include <math.h>

#include "generator/status.h"

int ft_scorer_open(struct ft_scorer *scorer, const struct ft_host_problem *problem) {
  *scorer = (struct ft_scorer){.problem = problem, .known = problem->score};
  if (scorer->known == NULL) return FT_OK;
  const struct ft_score *const score = &scorer->known->score;
  scorer->inputs = problem->score_inputs;
  const int roots[] = {score->score, score->visible, scorer->known->slope};
  return ft_interpreter_open(&scorer->interpreter, score, roots, 3);
}

void ft_scorer_close(struct ft_scorer *scorer) {
  ft_interpreter_close(&scorer->interpreter);
}

void ft_scorer_enter(struct ft_scorer *scorer, struct ft_row row) {
  const struct ft_request *const request = &scorer->problem->request;
  double *const symbols = scorer->inputs.symbols;
  symbols[FT_SYMBOL_B] = (double)row.batch;
  symbols[FT_SYMBOL_H] = row.head;
  symbols[FT_SYMBOL_KV] = row.head / (request->heads_q / request->heads_kv);
  symbols[FT_SYMBOL_I] = (double)row.i;
}

struct ft_scored ft_scorer_key(struct ft_scorer *scorer, int64_t j, double s) {
  const struct ft_known_score *const known = scorer->known;
  if (known == NULL) return (struct ft_scored){.score = s, .slope = 1, .visible = true};
  scorer->inputs.symbols[FT_SYMBOL_J] = (double)j;
  scorer->inputs.symbols[FT_SYMBOL_S] = s;
  ft_interpret(&scorer->interpreter, &scorer->inputs);
  const double score = ft_interpreter_value(&scorer->interpreter, known->score.score);
  const bool visible = ft_interpreter_value(&scorer->interpreter, known->score.visible) != 0;
  return (struct ft_scored){.score = score,
                            .slope = ft_interpreter_value(&scorer->interpreter, known->slope),
                            .visible = visible && score != -HUGE_VAL};
}
