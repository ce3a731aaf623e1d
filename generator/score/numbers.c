/* numbers.c: what an operation makes of numbers.
 * in -> out: operation, values of the operands -> value, in float64. */
#include "generator/score/numbers.h"

#include <math.h>

static double floor_to_int(double x) {
  if (isnan(x)) return 0;
  return fmin(fmax(floor(x), INT32_MIN), INT32_MAX);
}

static double floor_divided(double a, double b) {
  return b == 0 ? 0 : floor(a / b);
}

static double modulo(double a, double b) {
  return b == 0 ? 0 : a - b * floor(a / b);
}

static double lesser(double a, double b) {
  return a < b || isnan(a) ? a : b;
}

static double greater(double a, double b) {
  return a > b || isnan(a) ? a : b;
}

double ft_operate(enum ft_operation operation, const double *operands) {
  const double a = operands[0], b = operands[1], c = operands[2];
  switch (operation) {
  case FT_OP_FLOAT: return a;
  case FT_OP_ADD: return a + b;
  case FT_OP_SUB: return a - b;
  case FT_OP_MUL: return a * b;
  case FT_OP_DIV: return a / b;
  case FT_OP_FLOOR_DIV: return floor_divided(a, b);
  case FT_OP_MOD: return modulo(a, b);
  case FT_OP_NEG: return -a;
  case FT_OP_ABS: return fabs(a);
  case FT_OP_MIN: return lesser(a, b);
  case FT_OP_MAX: return greater(a, b);
  case FT_OP_FLOOR: return floor_to_int(a);
  case FT_OP_EXP: return exp(a);
  case FT_OP_LOG: return log(a);
  case FT_OP_TANH: return tanh(a);
  case FT_OP_SIGMOID: return 1 / (1 + exp(-a));
  case FT_OP_SIGMOID2: return 1 / (1 + exp2(-a));
  case FT_OP_LT: return a < b;
  case FT_OP_LE: return a <= b;
  case FT_OP_EQ: return a == b;
  case FT_OP_AND: return a != 0 && b != 0;
  case FT_OP_OR: return a != 0 || b != 0;
  case FT_OP_NOT: return a == 0;
  case FT_OP_WHERE: return a != 0 ? b : c;
  default: return NAN;
  }
}
