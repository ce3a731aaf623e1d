/* ties.c: decisions within the rounding of fp32.
 * in -> out: values of nodes, what they err by -> comparisons and floors that may be otherwise. */
#include "generator/score/ties.h"

#include <math.h>
#include <stdlib.h>

#include "generator/score/rounding.h"
#include "generator/status.h"

static bool decides(const struct ft_expression *expression, const struct ft_node *node) {
  switch (node->operation) {
  case FT_OP_FLOOR: return true;
  case FT_OP_LT:
  case FT_OP_LE:
  case FT_OP_EQ:
    return ft_node(expression, node->operands[0])->type == FT_VALUE_FLOAT ||
           ft_node(expression, node->operands[1])->type == FT_VALUE_FLOAT;
  default: return false;
  }
}

int ft_ties_open(struct ft_ties *ties, const struct ft_interpreter *interpreter) {
  const struct ft_expression *const expression = &interpreter->score->expression;
  const size_t nodes = (size_t)expression->count;
  *ties = (struct ft_ties){.decisions = malloc(nodes * sizeof(int)),
                           .errors = calloc(nodes, sizeof(double))};
  if (ties->decisions == NULL || ties->errors == NULL) {
    ft_ties_close(ties);
    return ft_fail(FT_E_MEMORY, "no memory for errors of score %s", interpreter->score->name);
  }
  for (int n = 0; n < interpreter->count; ++n)
    if (decides(expression, ft_node(expression, interpreter->nodes[n])))
      ties->decisions[ties->decision_count++] = interpreter->nodes[n];
  return FT_OK;
}

void ft_ties_close(struct ft_ties *ties) {
  free(ties->decisions);
  free(ties->errors);
  *ties = (struct ft_ties){0};
}

/* Whether the node may have another value, which is then *other. */
static bool is_tie(const struct ft_ties *ties, const struct ft_interpreter *interpreter, int number,
                   double *other) {
  static const double room = 2;
  const struct ft_node *const node = ft_node(&interpreter->score->expression, number);
  const bool floors = node->operation == FT_OP_FLOOR;
  const double *const values = interpreter->values;
  const int a = node->operands[0], b = floors ? a : node->operands[1];
  const double error = room * (ties->errors[a] + (floors ? 0 : ties->errors[b]));
  if (!(error > 0) || !isfinite(error) || !isfinite(values[a]) || !isfinite(values[b]))
    return false;
  if (!floors) {
    *other = values[number] != 0 ? 0 : 1;
    return fabs(values[a] - values[b]) <= error;
  }
  const double above = values[a] - values[number];
  if (!(above >= 0 && above < 1)) return false; /* it is beyond 32 bits */
  *other = values[number] + (above < 0.5 ? -1 : 1);
  return fmin(above, 1 - above) <= error;
}

int ft_ties_find(struct ft_ties *ties, const struct ft_interpreter *interpreter, double of_s) {
  ties->count = 0;
  if (ties->decision_count == 0) return 0;
  (void)ft_score_rounding(interpreter, of_s, ties->errors, 0);
  for (int n = 0; n < ties->decision_count && ties->count < FT_TIES_MOST; ++n) {
    const int number = ties->decisions[n];
    double other;
    if (!is_tie(ties, interpreter, number, &other)) continue;
    ties->found[ties->count] = (struct ft_forced){number, interpreter->values[number]};
    ties->others[ties->count++] = other;
  }
  return (1 << ties->count) - 1;
}

void ft_ties_interpret(const struct ft_ties *ties, struct ft_interpreter *interpreter,
                       const struct ft_score_inputs *inputs, int way) {
  struct ft_forced forced[FT_TIES_MOST];
  for (int n = 0; n < ties->count; ++n) {
    forced[n] = ties->found[n];
    if (way >> n & 1) forced[n].value = ties->others[n];
  }
  ft_interpret_forced(interpreter, inputs, forced, ties->count);
}
