/* expression.c: expressions of score functions, as nodes of which each exists once.
 * in -> out: operation, type, operands -> number of the node, by a hash table. */
#include "generator/score/expression.h"

#include <stdlib.h>
#include <string.h>

#include "generator/score/range.h"
#include "generator/status.h"

enum { SLOTS = 2 * FT_SCORE_NODES };

static const struct {
  const char *text;
  int precedence, operands;
} operations[] = {
#define OP(name, text, precedence, operands) {text, precedence, operands},
#include "generator/score/operations.def"
#undef OP
};

const char *ft_operation_text(enum ft_operation operation) {
  return operations[operation].text;
}

int ft_operation_precedence(enum ft_operation operation) {
  return operations[operation].precedence;
}

int ft_operation_operands(enum ft_operation operation) {
  return operations[operation].operands;
}

const char *ft_symbol_name(enum ft_symbol symbol) {
  /* ORDER SYMBOL */
  static const char *const names[FT_SYMBOLS_ALL] = {
      "s",     "b",        "h",     "kv",  "i",         "j",       "nq",    "nk",  "batch",
      "heads", "kv_heads", "scale", "raw", "minus_max", "first_j", "delta", "side"};
  return names[symbol];
}

const char *ft_value_type_name(enum ft_value_type type) {
  static const char *const names[] = {"bool", "int", "float"};
  return names[type];
}

int ft_expression_open(struct ft_expression *expression) {
  *expression = (struct ft_expression){.nodes = calloc(FT_SCORE_NODES, sizeof(struct ft_node)),
                                       .slots = malloc(SLOTS * sizeof(int))};
  if (expression->nodes == NULL || expression->slots == NULL) {
    ft_expression_close(expression);
    return ft_fail(FT_E_MEMORY, "no memory for the expression of a score");
  }
  for (int i = 0; i < SLOTS; ++i) expression->slots[i] = -1;
  ft_constant(expression, FT_VALUE_FLOAT, 0);
  return FT_OK;
}

void ft_expression_close(struct ft_expression *expression) {
  free(expression->nodes);
  free(expression->slots);
  *expression = (struct ft_expression){0};
}

static uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint64_t hash_of(const struct ft_node *node) {
  uint64_t hash = mixed((uint64_t)node->operation, (uint64_t)node->type);
  for (int i = 0; i < node->operand_count; ++i) hash = mixed(hash, (uint64_t)node->operands[i]);
  return mixed(mixed(hash, (uint64_t)node->number), bits_of(node->value));
}

static bool is_same(const struct ft_node *a, const struct ft_node *b) {
  bool same = a->operation == b->operation && a->type == b->type && a->number == b->number &&
              bits_of(a->value) == bits_of(b->value) && a->operand_count == b->operand_count;
  for (int i = 0; same && i < a->operand_count; ++i) same = a->operands[i] == b->operands[i];
  return same;
}

int ft_expression_add(struct ft_expression *expression, struct ft_node node) {
  uint64_t slot = hash_of(&node) % SLOTS;
  for (; expression->slots[slot] >= 0; slot = (slot + 1) % SLOTS)
    if (is_same(&expression->nodes[expression->slots[slot]], &node)) return expression->slots[slot];
  if (expression->count == FT_SCORE_NODES) {
    expression->full = true;
    return 0;
  }
  for (int i = 0; i < node.operand_count; ++i)
    node.sources |= ft_node(expression, node.operands[i])->sources;
  node.line = expression->line;
  ft_range_of(expression, &node, &node.least, &node.most);
  expression->slots[slot] = expression->count;
  expression->nodes[expression->count] = node;
  return expression->count++;
}

int ft_constant(struct ft_expression *expression, enum ft_value_type type, double value) {
  return ft_expression_add(
      expression, (struct ft_node){.operation = FT_OP_CONSTANT, .type = type, .value = value});
}

int ft_symbol(struct ft_expression *expression, enum ft_symbol symbol) {
  const bool is_float = symbol == FT_SYMBOL_S || symbol >= FT_SYMBOLS;
  return ft_expression_add(expression,
                           (struct ft_node){.operation = FT_OP_SYMBOL,
                                            .type = is_float ? FT_VALUE_FLOAT : FT_VALUE_INT,
                                            .number = (int)symbol,
                                            .sources = ft_source_symbol((int)symbol)});
}
