/* cost.c: what a score costs a kernel, counted in its expressions.
 * in -> out: nodes -> instructions, special functions, reads of an element. */
#include "generator/score/cost.h"

#include "generator/score/lower.h"

static const double OF_KEY = 0.5; /* of an element */

/* Instructions of what is more than one. */
enum {
  READ_INSTRUCTIONS = 2,    /* the address, the load */
  DIVIDE_INSTRUCTIONS = 8,  /* of floats */
  BY_CONSTANT = 4,          /* integers by a constant */
  BY_INTEGER = 20,          /* integers by integers */
  EXTREMUM_INSTRUCTIONS = 3 /* of floats, with NaN */
};

/* In a step a row and its maximum, the first key and the side of the query do not change. */
static enum ft_level level_of(const struct ft_node *node) {
  const uint64_t of_elements = ft_source_symbol(FT_SYMBOL_S) | ft_source_symbol(FT_SYMBOL_RAW) |
                               ft_source_symbol(FT_SYMBOL_DELTA);
  const uint64_t of_rows = ft_source_symbol(FT_SYMBOL_I) | ft_source_symbol(FT_SYMBOL_MINUS_MAX) |
                           ft_source_symbol(FT_SYMBOL_FIRST_J) | ft_source_symbol(FT_SYMBOL_SIDE);
  const bool row = node->sources & of_rows, column = node->sources & ft_source_symbol(FT_SYMBOL_J);
  if (node->sources & of_elements || (row && column)) return FT_LEVEL_ELEMENT;
  return column ? FT_LEVEL_COLUMN : row ? FT_LEVEL_ROW : FT_LEVEL_HEAD;
}

/* A product that a sum takes is an instruction with it. */
static bool takes_a_product(const struct ft_expression *expression, const struct ft_node *node) {
  for (int i = 0; i < node->operand_count; ++i) {
    const struct ft_node *const operand = ft_node(expression, node->operands[i]);
    if (operand->operation == FT_OP_MUL && level_of(operand) == level_of(node)) return true;
  }
  return false;
}

static struct ft_score_cost plain(double instructions) {
  return (struct ft_score_cost){.instructions = instructions};
}

static struct ft_score_cost with_special(double instructions, double special) {
  return (struct ft_score_cost){.instructions = instructions, .special = special};
}

static struct ft_score_cost of_float(const struct ft_expression *expression,
                                     const struct ft_node *node) {
  switch (node->operation) {
  case FT_OP_ADD:
  case FT_OP_SUB: return plain(takes_a_product(expression, node) ? 0 : 1);
  case FT_OP_NEG: /* of an operand of the next instruction */
  case FT_OP_ABS: return plain(0);
  case FT_OP_MIN:
  case FT_OP_MAX: return plain(EXTREMUM_INSTRUCTIONS);
  case FT_OP_DIV: return with_special(DIVIDE_INSTRUCTIONS, 1);
  case FT_OP_EXP:
  case FT_OP_LOG: return with_special(2, 1);
  case FT_OP_TANH: return with_special(5, 2);
  case FT_OP_SIGMOID: return with_special(4, 2);
  case FT_OP_SIGMOID2: return with_special(3, 1.25); /* four share a reciprocal */
  default: return plain(1);
  }
}

static struct ft_score_cost of_integer(const struct ft_expression *expression,
                                       const struct ft_node *node) {
  if (node->operation == FT_OP_FLOOR) return with_special(1, 1);
  if (node->operation == FT_OP_NEG) return plain(2); /* parts/ptx_signs.cu.in */
  if (node->operation != FT_OP_FLOOR_DIV && node->operation != FT_OP_MOD) return plain(1);
  const bool by_constant = ft_node(expression, node->operands[1])->operation == FT_OP_CONSTANT;
  return by_constant ? plain(BY_CONSTANT) : with_special(BY_INTEGER, 2);
}

static struct ft_score_cost of_node(const struct ft_expression *expression,
                                    const struct ft_node *node) {
  if (node->operation == FT_OP_READ)
    return (struct ft_score_cost){.instructions = READ_INSTRUCTIONS, .reads = 1};
  if (node->operation < FT_OP_READ) return plain(0);
  if (node->operation == FT_OP_FLOAT) {
    const bool at_hand = ft_node(expression, node->operands[0])->operation == FT_OP_SYMBOL;
    return at_hand ? plain(0) : with_special(1, 1);
  }
  if (node->type == FT_VALUE_FLOAT) return of_float(expression, node);
  if (node->type == FT_VALUE_INT) return of_integer(expression, node);
  return plain(node->operation == FT_OP_NOT ? 0 : 1);
}

struct ft_score_cost ft_score_cost_of(const struct ft_expression *expression, const int *roots,
                                      int count) {
  bool is_needed[FT_SCORE_NODES] = {false};
  struct ft_score_cost cost = {0};
  int last = 0;
  for (int i = 0; i < count; ++i) {
    is_needed[roots[i]] = true;
    if (roots[i] > last) last = roots[i];
  }
  for (int n = last; n >= 0; --n) {
    const struct ft_node *const node = ft_node(expression, n);
    if (!is_needed[n]) continue;
    for (int i = 0; i < node->operand_count; ++i) is_needed[node->operands[i]] = true;
    const enum ft_level level = level_of(node);
    const double share = level == FT_LEVEL_ELEMENT ? 1 : level == FT_LEVEL_COLUMN ? OF_KEY : 0;
    const struct ft_score_cost own = of_node(expression, node);
    cost.instructions += share * own.instructions;
    cost.special += share * own.special;
    cost.reads += share * own.reads;
  }
  return cost;
}
