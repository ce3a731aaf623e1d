/* range.c: between which values an integer of an expression lies.
 * in -> out: node with operands -> least and most, by interval arithmetic. */
#include "generator/score/range.h"

#include <math.h>

struct range {
  double least, most;
};

static const struct range all = {INT32_MIN, INT32_MAX};

static struct range of_symbol(int symbol) {
  switch (symbol) {
  case FT_SYMBOL_I:
  case FT_SYMBOL_J: return (struct range){0, FT_SCORE_LENGTH_MOST - 1};
  case FT_SYMBOL_NQ:
  case FT_SYMBOL_NK: return (struct range){1, FT_SCORE_LENGTH_MOST};
  default: return (struct range){symbol > FT_SYMBOL_NK, INT32_MAX};
  }
}

static struct range product(struct range a, struct range b) {
  const double corners[] = {a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most};
  struct range range = {corners[0], corners[0]};
  for (int i = 1; i < 4; ++i) {
    range.least = fmin(range.least, corners[i]);
    range.most = fmax(range.most, corners[i]);
  }
  return range;
}

/* Division by what may be 0 gives 0. */
static struct range quotient(struct range a, struct range b) {
  if (b.least >= 1)
    return (struct range){fmin(floor(a.least / b.least), floor(a.least / b.most)),
                          fmax(floor(a.most / b.least), floor(a.most / b.most))};
  return a.least >= 0 && b.least >= 0 ? (struct range){0, a.most} : all;
}

static struct range remainder_of(struct range a, struct range b) {
  if (b.least < 0) return all;
  if (a.least >= 0 && a.most < b.least) return a;
  return (struct range){0, fmax(b.most - 1, 0)};
}

static struct range of_operands(const struct ft_node *node, struct range a, struct range b,
                                struct range c) {
  switch (node->operation) {
  case FT_OP_ADD: return (struct range){a.least + b.least, a.most + b.most};
  case FT_OP_SUB: return (struct range){a.least - b.most, a.most - b.least};
  case FT_OP_MUL: return product(a, b);
  case FT_OP_FLOOR_DIV: return quotient(a, b);
  case FT_OP_MOD: return remainder_of(a, b);
  case FT_OP_NEG: return (struct range){-a.most, -a.least};
  case FT_OP_ABS:
    return (struct range){a.least > 0  ? a.least
                          : a.most < 0 ? -a.most
                                       : 0,
                          fmax(fabs(a.least), fabs(a.most))};
  case FT_OP_MIN: return (struct range){fmin(a.least, b.least), fmin(a.most, b.most)};
  case FT_OP_MAX: return (struct range){fmax(a.least, b.least), fmax(a.most, b.most)};
  case FT_OP_WHERE: return (struct range){fmin(b.least, c.least), fmax(b.most, c.most)};
  default: return all;
  }
}

void ft_range_of(const struct ft_expression *expression, const struct ft_node *node, double *least,
                 double *most) {
  if (node->operation == FT_OP_READ && node->most > node->least) return;
  struct range range = all, operands[3] = {{0, 0}, {0, 0}, {0, 0}};
  for (int i = 0; i < node->operand_count && i < 3; ++i) {
    const struct ft_node *const operand = ft_node(expression, node->operands[i]);
    operands[i] = (struct range){operand->least, operand->most};
  }
  if (node->type == FT_VALUE_INT && node->operation == FT_OP_CONSTANT)
    range = (struct range){node->value, node->value};
  else if (node->type == FT_VALUE_INT && node->operation == FT_OP_SYMBOL)
    range = of_symbol(node->number);
  else if (node->type == FT_VALUE_INT)
    range = of_operands(node, operands[0], operands[1], operands[2]);
  if (range.least < INT32_MIN || range.most > INT32_MAX) range = all;
  *least = range.least;
  *most = range.most;
}
