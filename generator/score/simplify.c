/* simplify.c: expressions as small as they can be had without a change of their values.
 * in -> out: operation, operands -> number of the node that has the value, by one rule after
 * another. A rule returns NONE where it says nothing. */
#include "generator/score/simplify.h"

#include <math.h>

#include "generator/score/numbers.h"

enum { NONE = -1 };

static bool is_constant(const struct ft_expression *e, int node) {
  return ft_node(e, node)->operation == FT_OP_CONSTANT;
}

static bool is_value(const struct ft_expression *e, int node, double value) {
  return is_constant(e, node) && ft_node(e, node)->value == value;
}

static bool is(const struct ft_expression *e, int node, enum ft_operation operation) {
  return ft_node(e, node)->operation == operation;
}

static int operand(const struct ft_expression *e, int node, int i) {
  return ft_node(e, node)->operands[i];
}

static bool is_int(const struct ft_expression *e, int node) {
  return ft_node(e, node)->type == FT_VALUE_INT;
}

static bool is_power_of_two(double value) {
  int exponent;
  return isfinite(value) && fabs(frexp(value, &exponent)) == 0.5;
}

static enum ft_value_type type_of(const struct ft_expression *e, enum ft_operation operation,
                                  const int *operands) {
  switch (operation) {
  case FT_OP_LT:
  case FT_OP_LE:
  case FT_OP_EQ:
  case FT_OP_AND:
  case FT_OP_OR:
  case FT_OP_NOT: return FT_VALUE_BOOL;
  case FT_OP_FLOOR: return FT_VALUE_INT;
  case FT_OP_FLOAT: return FT_VALUE_FLOAT;
  case FT_OP_WHERE: return ft_node(e, operands[1])->type;
  default: return ft_node(e, operands[0])->type;
  }
}

static int of_constants(struct ft_expression *e, enum ft_operation operation, const int *operands,
                        int count) {
  double values[3] = {0};
  for (int i = 0; i < count; ++i) {
    if (!is_constant(e, operands[i])) return NONE;
    values[i] = ft_node(e, operands[i])->value;
  }
  const double value = ft_operate(operation, values);
  const enum ft_value_type type = type_of(e, operation, operands);
  if (type == FT_VALUE_INT && !(value >= INT32_MIN && value <= INT32_MAX)) return NONE;
  return ft_constant(e, type, value);
}

/* What is a where one condition holds and b where it does not, as one choice. */
static int sum_of_choices(struct ft_expression *e, int a, int b) {
  if (!is(e, a, FT_OP_WHERE) || !is(e, b, FT_OP_WHERE) || operand(e, a, 0) != operand(e, b, 0))
    return NONE;
  if (is_value(e, operand(e, a, 2), 0) && is_value(e, operand(e, b, 1), 0))
    return ft_where(e, operand(e, a, 0), operand(e, a, 1), operand(e, b, 2));
  if (is_value(e, operand(e, a, 1), 0) && is_value(e, operand(e, b, 2), 0))
    return ft_where(e, operand(e, a, 0), operand(e, b, 1), operand(e, a, 2));
  return NONE;
}

static int sum(struct ft_expression *e, int a, int b) {
  if (is_value(e, b, 0)) return a;
  if (is(e, b, FT_OP_NEG)) return ft_binary(e, FT_OP_SUB, a, operand(e, b, 0));
  if (is(e, a, FT_OP_NEG)) return ft_binary(e, FT_OP_SUB, b, operand(e, a, 0));
  return sum_of_choices(e, a, b);
}

static int difference(struct ft_expression *e, int a, int b) {
  if (is_value(e, b, 0)) return a;
  if (is_value(e, a, 0)) return ft_unary(e, FT_OP_NEG, b);
  if (is(e, b, FT_OP_NEG)) return ft_binary(e, FT_OP_ADD, a, operand(e, b, 0));
  if (a == b && is_int(e, a)) return ft_constant(e, FT_VALUE_INT, 0);
  return NONE;
}

static int product(struct ft_expression *e, int a, int b) {
  if (is_value(e, b, 1)) return a;
  if (is_value(e, b, -1)) return ft_unary(e, FT_OP_NEG, a);
  if (is_int(e, a) && is_value(e, b, 0)) return ft_constant(e, FT_VALUE_INT, 0);
  if (is(e, a, FT_OP_NEG) && is(e, b, FT_OP_NEG))
    return ft_binary(e, FT_OP_MUL, operand(e, a, 0), operand(e, b, 0));
  if (is_constant(e, b) && is(e, a, FT_OP_WHERE) && is_constant(e, operand(e, a, 1)) &&
      is_constant(e, operand(e, a, 2)))
    return ft_where(e, operand(e, a, 0), ft_binary(e, FT_OP_MUL, operand(e, a, 1), b),
                    ft_binary(e, FT_OP_MUL, operand(e, a, 2), b));
  return NONE;
}

static int quotient(struct ft_expression *e, int a, int b) {
  if (is_value(e, b, 1)) return a;
  if (is_constant(e, b) && is_power_of_two(ft_node(e, b)->value))
    return ft_binary(e, FT_OP_MUL, a, ft_constant(e, FT_VALUE_FLOAT, 1 / ft_node(e, b)->value));
  return NONE;
}

static int whole_quotient(struct ft_expression *e, enum ft_operation operation, int a, int b) {
  if (is_value(e, b, 1)) return operation == FT_OP_MOD ? ft_constant(e, FT_VALUE_INT, 0) : a;
  const struct ft_node *const dividend = ft_node(e, a), *const divisor = ft_node(e, b);
  if (dividend->least >= 0 && dividend->most < divisor->least) /* a < b */
    return operation == FT_OP_MOD ? a : ft_constant(e, FT_VALUE_INT, 0);
  return NONE;
}

static int extreme(const struct ft_expression *e, enum ft_operation operation, int a, int b) {
  if (a == b) return a;
  if (!is_int(e, a)) return NONE;
  const struct ft_node *const x = ft_node(e, a), *const y = ft_node(e, b);
  if (x->most <= y->least) return operation == FT_OP_MIN ? a : b;
  if (y->most <= x->least) return operation == FT_OP_MIN ? b : a;
  return NONE;
}

static int comparison(struct ft_expression *e, enum ft_operation operation, int a, int b) {
  if (ft_node(e, a)->type == FT_VALUE_FLOAT) return NONE;
  if (a == b) return ft_constant(e, FT_VALUE_BOOL, operation != FT_OP_LT);
  if (operation == FT_OP_EQ && ft_node(e, a)->type == FT_VALUE_BOOL) {
    if (is_constant(e, b)) return is_value(e, b, 1) ? a : ft_unary(e, FT_OP_NOT, a);
    return NONE;
  }
  const struct ft_node *const x = ft_node(e, a), *const y = ft_node(e, b);
  if (x->most < y->least) return ft_constant(e, FT_VALUE_BOOL, operation != FT_OP_EQ);
  if (y->most < x->least) return ft_constant(e, FT_VALUE_BOOL, 0);
  if (operation == FT_OP_LE && x->most <= y->least) return ft_constant(e, FT_VALUE_BOOL, 1);
  if (operation == FT_OP_LT && y->most <= x->least) return ft_constant(e, FT_VALUE_BOOL, 0);
  return NONE;
}

/* `and` keeps what is true, `or` what is false. */
static int junction(struct ft_expression *e, enum ft_operation operation, int a, int b) {
  const double neutral = operation == FT_OP_AND;
  if (a == b) return a;
  if (is_constant(e, b)) return is_value(e, b, neutral) ? a : b;
  return NONE;
}

static int negation(struct ft_expression *e, int a) {
  if (is(e, a, FT_OP_NOT)) return operand(e, a, 0);
  const bool compares = is(e, a, FT_OP_LT) || is(e, a, FT_OP_LE);
  if (!compares || !is_int(e, operand(e, a, 0))) return NONE; /* a float may be NaN */
  return ft_binary(e, is(e, a, FT_OP_LT) ? FT_OP_LE : FT_OP_LT, operand(e, a, 1), operand(e, a, 0));
}

static int negative(struct ft_expression *e, int a) {
  if (is(e, a, FT_OP_NEG)) return operand(e, a, 0);
  if (is(e, a, FT_OP_SUB)) return ft_binary(e, FT_OP_SUB, operand(e, a, 1), operand(e, a, 0));
  return NONE;
}

static int choice(struct ft_expression *e, int condition, int a, int b) {
  if (is_constant(e, condition)) return is_value(e, condition, 1) ? a : b;
  if (a == b) return a;
  if (is(e, condition, FT_OP_NOT)) return ft_where(e, operand(e, condition, 0), b, a);
  if (ft_node(e, a)->type != FT_VALUE_BOOL) return NONE;
  if (is_value(e, b, 0)) return ft_binary(e, FT_OP_AND, condition, a);
  if (is_value(e, a, 1)) return ft_binary(e, FT_OP_OR, condition, b);
  return NONE;
}

/* Of operands that may change places a constant is the last. */
static int by_rule(struct ft_expression *e, enum ft_operation operation, const int *operands) {
  const int a = operands[0], b = operands[1];
  switch (operation) {
  case FT_OP_ADD: return sum(e, a, b);
  case FT_OP_SUB: return difference(e, a, b);
  case FT_OP_MUL: return product(e, a, b);
  case FT_OP_DIV: return quotient(e, a, b);
  case FT_OP_FLOOR_DIV:
  case FT_OP_MOD: return whole_quotient(e, operation, a, b);
  case FT_OP_NEG: return negative(e, a);
  case FT_OP_ABS: return is_int(e, a) && ft_node(e, a)->least >= 0 ? a : NONE;
  case FT_OP_MIN:
  case FT_OP_MAX: return extreme(e, operation, a, b);
  case FT_OP_FLOOR: return is(e, a, FT_OP_FLOAT) ? operand(e, a, 0) : NONE;
  case FT_OP_LT:
  case FT_OP_LE:
  case FT_OP_EQ: return comparison(e, operation, a, b);
  case FT_OP_AND:
  case FT_OP_OR: return junction(e, operation, a, b);
  case FT_OP_NOT: return negation(e, a);
  case FT_OP_WHERE: return choice(e, a, b, operands[2]);
  default: return NONE;
  }
}

/* a op b is b op a: the constant comes last, else the older node first. min and max of a NaN are
 * NaN whichever comes first. */
static bool is_commutative(enum ft_operation operation) {
  return operation == FT_OP_ADD || operation == FT_OP_MUL || operation == FT_OP_MIN ||
         operation == FT_OP_MAX || operation == FT_OP_EQ || operation == FT_OP_AND ||
         operation == FT_OP_OR;
}

static bool comes_last(const struct ft_expression *e, int a, int b) {
  return is_constant(e, a) != is_constant(e, b) ? is_constant(e, a) : a > b;
}

/* Where one of the numbers is a float, all become floats. */
static void promote(struct ft_expression *e, enum ft_operation operation, int *operands,
                    int count) {
  const int first = operation == FT_OP_WHERE;
  bool has_float =
      operation == FT_OP_DIV || (operation >= FT_OP_FLOOR && operation <= FT_OP_SIGMOID);
  for (int i = first; i < count; ++i)
    has_float = has_float || ft_node(e, operands[i])->type == FT_VALUE_FLOAT;
  if (operation == FT_OP_FLOAT || !has_float) return;
  for (int i = first; i < count; ++i) operands[i] = ft_as_float(e, operands[i]);
}

int ft_simplified(struct ft_expression *expression, enum ft_operation operation,
                  const int given[FT_OPERANDS_MOST]) {
  const int count = ft_operation_operands(operation);
  struct ft_node node = {.operation = operation, .operand_count = count};
  for (int i = 0; i < count && i < FT_OPERANDS_MOST; ++i) node.operands[i] = given[i];
  promote(expression, operation, node.operands, count);
  if (is_commutative(operation) && comes_last(expression, node.operands[0], node.operands[1])) {
    const int first = node.operands[0];
    node.operands[0] = node.operands[1];
    node.operands[1] = first;
  }
  int known = of_constants(expression, operation, node.operands, count);
  if (known == NONE) known = by_rule(expression, operation, node.operands);
  if (known != NONE) return known;
  node.type = type_of(expression, operation, node.operands);
  return ft_expression_add(expression, node);
}

int ft_unary(struct ft_expression *expression, enum ft_operation operation, int a) {
  return ft_simplified(expression, operation, (const int[FT_OPERANDS_MOST]){a});
}

int ft_binary(struct ft_expression *expression, enum ft_operation operation, int a, int b) {
  return ft_simplified(expression, operation, (const int[FT_OPERANDS_MOST]){a, b});
}

int ft_where(struct ft_expression *expression, int condition, int a, int b) {
  return ft_simplified(expression, FT_OP_WHERE, (const int[FT_OPERANDS_MOST]){condition, a, b});
}

int ft_as_float(struct ft_expression *expression, int node) {
  return is_int(expression, node) ? ft_unary(expression, FT_OP_FLOAT, node) : node;
}
