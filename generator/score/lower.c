/* lower.c: expressions as kernels had better compute them.
 * in -> out: node -> node of the same value but for rounding. */
#include "generator/score/lower.h"

#include <stdlib.h>

#include "generator/score/simplify.h"
#include "generator/status.h"

enum ft_level ft_level_of(const struct ft_node *node) {
  const uint64_t of_elements = ft_source_symbol(FT_SYMBOL_S) | ft_source_symbol(FT_SYMBOL_RAW) |
                               ft_source_symbol(FT_SYMBOL_MINUS_MAX) |
                               ft_source_symbol(FT_SYMBOL_FIRST_J) |
                               ft_source_symbol(FT_SYMBOL_DELTA) | ft_source_symbol(FT_SYMBOL_SIDE);
  if (node->sources & of_elements) return FT_LEVEL_ELEMENT;
  const bool row = node->sources & ft_source_symbol(FT_SYMBOL_I);
  const bool column = node->sources & ft_source_symbol(FT_SYMBOL_J);
  return (enum ft_level)((row ? FT_LEVEL_ROW : 0) | (column ? FT_LEVEL_COLUMN : 0));
}

static int quotient(struct ft_expression *expression, int a, int b) {
  const int one = ft_constant(expression, FT_VALUE_FLOAT, 1);
  const enum ft_level of_a = ft_level_of(ft_node(expression, a));
  const enum ft_level of_b = ft_level_of(ft_node(expression, b));
  const enum ft_level of_both = (enum ft_level)(of_a | of_b);
  if (of_b == of_both) return ft_binary(expression, FT_OP_DIV, a, b);
  return ft_binary(expression, FT_OP_MUL, a, ft_binary(expression, FT_OP_DIV, one, b));
}

/* An integer as fp32. What depends on a query or a key is computed in fp32 where that is exact: one
 * conversion for many elements, in place of one for each. */
static int as_float(struct ft_expression *expression, int number) {
  const struct ft_node node = *ft_node(expression, number);
  const double exact = 1 << 24;
  bool passes = node.operation == FT_OP_ADD || node.operation == FT_OP_SUB ||
                node.operation == FT_OP_NEG || node.operation == FT_OP_ABS;
  for (int i = 0; i < node.operand_count && passes; ++i) {
    const struct ft_node *const operand = ft_node(expression, node.operands[i]);
    passes = operand->least >= -exact && operand->most <= exact;
  }
  const uint64_t positions = ft_source_symbol(FT_SYMBOL_I) | ft_source_symbol(FT_SYMBOL_J);
  int operands[FT_SCORE_DIMS] = {number};
  if (!passes || (node.sources & positions) == 0 || node.least < -exact || node.most > exact)
    return ft_simplified(expression, FT_OP_FLOAT, operands);
  for (int i = 0; i < node.operand_count; ++i) operands[i] = as_float(expression, node.operands[i]);
  return ft_simplified(expression, node.operation, operands);
}

/* ---- |a - b| <= c of integers ---- */

/* Whether an integer is so near 0 that sums of two like it fit into 32 bits. */
enum { NEAR = 1 << 29 };

static bool is_near(const struct ft_node *node) {
  return node->type == FT_VALUE_INT && node->least >= -NEAR && node->most <= NEAR;
}

/* c where that is from -1 to 2^30 + 1, else the nearest number that is: |a - b| compares to both
 * alike. */
static int as_bound(struct ft_expression *expression, int c) {
  const struct ft_node node = *ft_node(expression, c);
  const int most = ft_constant(expression, FT_VALUE_INT, 2 * NEAR + 1);
  const int least = ft_constant(expression, FT_VALUE_INT, -1);
  if (node.most > 2 * NEAR + 1) c = ft_binary(expression, FT_OP_MIN, c, most);
  if (node.least < -1) c = ft_binary(expression, FT_OP_MAX, c, least);
  return c;
}

/* |a - b| <= c, or < c, with a of a query and b of a key, or the other way about: what is of the
 * query less c, and plus c, is computed once for all keys. -1: it is no such comparison. */
static int as_interval(struct ft_expression *expression, enum ft_operation operation, int distance,
                       int c) {
  const struct ft_node absolute = *ft_node(expression, distance);
  if (absolute.operation != FT_OP_ABS || absolute.type != FT_VALUE_INT) return -1;
  const struct ft_node difference = *ft_node(expression, absolute.operands[0]);
  if (difference.operation != FT_OP_SUB) return -1;
  int a = difference.operands[0], b = difference.operands[1];
  if (!is_near(ft_node(expression, a)) || !is_near(ft_node(expression, b))) return -1;
  if (ft_level_of(ft_node(expression, a)) == FT_LEVEL_COLUMN) {
    const int query = b;
    b = a;
    a = query;
  }
  const enum ft_level of_a = ft_level_of(ft_node(expression, a));
  const enum ft_level of_c = ft_level_of(ft_node(expression, c));
  const bool splits = of_a == FT_LEVEL_ROW && (of_c == FT_LEVEL_HEAD || of_c == FT_LEVEL_ROW) &&
                      ft_level_of(ft_node(expression, b)) == FT_LEVEL_COLUMN;
  if (!splits) return -1;
  c = as_bound(expression, c);
  if (operation == FT_OP_LT)
    c = ft_binary(expression, FT_OP_SUB, c, ft_constant(expression, FT_VALUE_INT, 1));
  const int first = ft_binary(expression, FT_OP_SUB, a, c);
  const int last = ft_binary(expression, FT_OP_ADD, a, c);
  return ft_binary(expression, FT_OP_AND, ft_binary(expression, FT_OP_LE, first, b),
                   ft_binary(expression, FT_OP_LE, b, last));
}

/* And of c < |a - b|, or <=: what that interval has not. */
static int as_intervals(struct ft_expression *expression, enum ft_operation operation,
                        const int *operands) {
  const enum ft_operation other = operation == FT_OP_LE ? FT_OP_LT : FT_OP_LE;
  const int within = as_interval(expression, operation, operands[0], operands[1]);
  if (within >= 0) return within;
  const int hidden = as_interval(expression, other, operands[1], operands[0]);
  return hidden < 0 ? -1 : ft_unary(expression, FT_OP_NOT, hidden);
}

/* ---- */

static int lowered(struct ft_expression *expression, const int *lowered_nodes, int number) {
  const struct ft_node node = *ft_node(expression, number);
  int operands[FT_SCORE_DIMS] = {0};
  for (int i = 0; i < node.operand_count; ++i) operands[i] = lowered_nodes[node.operands[i]];
  if (node.operation == FT_OP_FLOAT) return as_float(expression, operands[0]);
  if (node.operation == FT_OP_DIV) return quotient(expression, operands[0], operands[1]);
  if (node.operation == FT_OP_LE || node.operation == FT_OP_LT) {
    const int interval = as_intervals(expression, node.operation, operands);
    if (interval >= 0) return interval;
  }
  if (node.operation > FT_OP_READ) return ft_simplified(expression, node.operation, operands);
  struct ft_node leaf = node;
  for (int i = 0; i < node.operand_count; ++i) leaf.operands[i] = operands[i];
  return ft_expression_add(expression, leaf);
}

int ft_score_lower(struct ft_expression *expression, int *roots, int count) {
  const int nodes = expression->count;
  int *const lowered_nodes = malloc((size_t)nodes * sizeof *lowered_nodes);
  if (lowered_nodes == NULL) return ft_fail(FT_E_MEMORY, "no memory to lower a score");
  for (int n = 0; n < nodes; ++n) lowered_nodes[n] = lowered(expression, lowered_nodes, n);
  for (int i = 0; i < count; ++i) roots[i] = lowered_nodes[roots[i]];
  free(lowered_nodes);
  return expression->full ? ft_fail(FT_E_ARGUMENT,
                                    "a score and its derivative take more than %d "
                                    "operations",
                                    FT_SCORE_NODES)
                          : FT_OK;
}
