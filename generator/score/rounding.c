/* rounding.c: errors of fp32, node by node.
 * in -> out: values of nodes, errors of their operands -> their own. */
#include "generator/score/rounding.h"

#include <math.h>

/* By which a rounded result errs of itself. */
static const double HALF_ULP = 0x1p-24;
/* What is made of rcp.approx, ex2.approx or lg2.approx: two roundings beside their two ulps. */
static const double APPROXIMATED = 6 * 0x1p-24;

static double of_constant(double value) {
  return (double)(float)value == value ? 0 : HALF_ULP * fabs(value);
}

/* A sum, a difference, a product of what is exact is exact where fp32 has its value. */
static double of_result(double value, double of_operands) {
  return of_operands == 0 ? of_constant(value) : of_operands + HALF_ULP * fabs(value);
}

/* a, b: operands; of_a, of_b: what they err by. */
static double error_of(const struct ft_node *node, double value, double a, double b, double of_a,
                       double of_b) {
  const double approximated = APPROXIMATED * fabs(value);
  switch (node->operation) {
  case FT_OP_CONSTANT:
  case FT_OP_FLOAT: return of_constant(value);
  case FT_OP_ADD:
  case FT_OP_SUB: return of_result(value, of_a + of_b);
  case FT_OP_MUL: return of_result(value, fabs(b) * of_a + fabs(a) * of_b);
  case FT_OP_DIV: return (of_a + fabs(value) * of_b) / fabs(b) + approximated;
  case FT_OP_NEG:
  case FT_OP_ABS: return of_a;
  case FT_OP_MIN:
  case FT_OP_MAX: return fmax(of_a, of_b);
  case FT_OP_EXP: return fabs(value) * (of_a + 2 * HALF_ULP * fabs(a)) + approximated;
  case FT_OP_LOG: return of_a / fabs(a) + approximated + APPROXIMATED;
  case FT_OP_TANH: return (1 - value * value) * of_a + 4 * HALF_ULP; /* 1 - 2 / (1 + e^2x) */
  case FT_OP_SIGMOID:
  case FT_OP_SIGMOID2: return value * (1 - value) * (of_a + 2 * HALF_ULP * fabs(a)) + approximated;
  default: return 0;
  }
}

double ft_score_rounding(const struct ft_interpreter *interpreter, double of_s, double *errors,
                         int node) {
  const double *const values = interpreter->values;
  for (int n = 0; n < interpreter->count; ++n) {
    const int number = interpreter->nodes[n];
    const struct ft_node *const one = ft_node(&interpreter->score->expression, number);
    const int *const operands = one->operands;
    const int a = one->operand_count > 0 ? operands[0] : number;
    const int b = one->operand_count > 1 ? operands[1] : a;
    double error = 0;
    if (one->operation == FT_OP_SYMBOL && one->number == FT_SYMBOL_S)
      error = of_s;
    else if (one->operation == FT_OP_WHERE)
      error = errors[values[a] != 0 ? b : operands[2]];
    else if (one->type == FT_VALUE_FLOAT)
      error = error_of(one, values[number], values[a], values[b], errors[a], errors[b]);
    errors[number] = isnan(error) ? HUGE_VAL : error;
  }
  return errors[node];
}
