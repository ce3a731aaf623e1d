/* cuda_ranges.c: between which values an expression lies, as CUDA C.
 * in -> out: node -> text of interval arithmetic, which a kernel evaluates over some queries and
 * keys. range.c bounds expressions on the host, over all queries and keys. */
#include "generator/score/cuda_ranges.h"

/* The functions of templates/parts/score_ranges.cu.in; NULL: of integers nothing is known. */
static const char *const functions[FT_OPERATIONS] = {
    [FT_OP_ADD] = "sum",      [FT_OP_SUB] = "difference",     [FT_OP_MUL] = "product",
    [FT_OP_MOD] = "rest",     [FT_OP_FLOOR_DIV] = "quotient", [FT_OP_NEG] = "negated",
    [FT_OP_ABS] = "size",     [FT_OP_MIN] = "least_of",       [FT_OP_MAX] = "most_of",
    [FT_OP_LT] = "is_less",   [FT_OP_LE] = "is_at_most",      [FT_OP_EQ] = "is_equal",
    [FT_OP_AND] = "least_of", [FT_OP_OR] = "most_of",         [FT_OP_NOT] = "denied",
    [FT_OP_WHERE] = "chosen"};

static const struct ft_node *node_at(const struct ft_cuda *cuda, int number) {
  return ft_node(&cuda->score->expression, number);
}

/* Whether the function of the root takes this node, which is no float, from a level. */
static bool is_value_of(const struct ft_cuda *cuda, int number, enum ft_level level) {
  const struct ft_node *const node = node_at(cuda, number);
  return cuda->kept[number] && ft_level_of(node) == level && node->type != FT_VALUE_FLOAT;
}

/* Its place among those of its level. */
static int place_of(const struct ft_cuda *cuda, int number, enum ft_level level) {
  int place = 0;
  for (int n = 0; n < number; ++n) place += is_value_of(cuda, n, level);
  return place;
}

static int write_values(struct ft_cuda *cuda, enum ft_level level) {
  const bool of_row = level == FT_LEVEL_ROW;
  const char *const what = of_row ? "row" : "column";
  int count = 0;
  for (int n = 0; n < cuda->nodes; ++n) count += is_value_of(cuda, n, level);
  ft_text_add(cuda->text,
              "constexpr int %s_VALUES = %d;\n"
              "__device__ __forceinline__ void values_of(int (&values)[%s_VALUES + 1], const %s "
              "&%s) {\n",
              of_row ? "ROW" : "COLUMN", count, of_row ? "ROW" : "COLUMN",
              of_row ? "ScoreRow" : "ScoreColumn", what);
  for (int n = 0; n < cuda->nodes; ++n)
    if (is_value_of(cuda, n, level))
      ft_text_add(cuda->text, "  values[%d] = %s.v%d;\n", place_of(cuda, n, level), what, n);
  ft_text_add(cuda->text, "  values[%s_VALUES] = 0;  // there is at least one\n}\n\n",
              of_row ? "ROW" : "COLUMN");
  return count;
}

static void write_operand(struct ft_cuda *cuda, int number) {
  const enum ft_level level = ft_level_of(node_at(cuda, number));
  if (level == FT_LEVEL_HEAD) {
    ft_text_add(cuda->text, "exactly(");
    ft_cuda_write_value(cuda, number);
    ft_text_add(cuda->text, ")");
  } else if (level == FT_LEVEL_ELEMENT) {
    ft_text_add(cuda->text, "r%d", number);
  } else {
    ft_text_add(cuda->text, "%s[%d]", level == FT_LEVEL_ROW ? "row" : "column",
                place_of(cuda, number, level));
  }
}

static bool takes_floats(const struct ft_cuda *cuda, const struct ft_node *node) {
  bool takes = false;
  for (int i = 0; i < node->operand_count; ++i)
    takes |= node_at(cuda, node->operands[i])->type == FT_VALUE_FLOAT;
  return takes;
}

static void write_range(struct ft_cuda *cuda, int number) {
  const struct ft_node *const node = node_at(cuda, number);
  ft_text_add(cuda->text, "  const Range r%d = ", number);
  if (node->operation == FT_OP_READ || takes_floats(cuda, node) || !functions[node->operation]) {
    const bool is_bool = node->type == FT_VALUE_BOOL;
    if (is_bool || (node->least == INT32_MIN && node->most == INT32_MAX))
      ft_text_add(cuda->text, "%s();\n", is_bool ? "maybe" : "anything");
    else
      ft_text_add(cuda->text, "{%.0f, %.0f};\n", node->least, node->most);
    return;
  }
  ft_text_add(cuda->text, "%s(", functions[node->operation]);
  for (int i = 0; i < node->operand_count; ++i) {
    if (i > 0) ft_text_add(cuda->text, ", ");
    write_operand(cuda, node->operands[i]);
  }
  ft_text_add(cuda->text, ");\n");
}

struct ft_range_values ft_cuda_write_ranges(struct ft_cuda *cuda, int root, const char *name) {
  const int of_row = write_values(cuda, FT_LEVEL_ROW);
  const int of_column = write_values(cuda, FT_LEVEL_COLUMN);
  ft_cuda_enter_element(cuda, root);
  ft_text_add(cuda->text,
              "__device__ __forceinline__ Range %s_between(const Score &score, const ScoreHead "
              "&head,\n    const Range (&row)[ROW_VALUES + 1], const Range (&column)[COLUMN_VALUES "
              "+ 1]) {\n",
              name);
  for (int n = 0; n < cuda->nodes; ++n) {
    const struct ft_node *const node = node_at(cuda, n);
    if (cuda->uses[n] > 0 && ft_level_of(node) == FT_LEVEL_ELEMENT && node->type != FT_VALUE_FLOAT)
      write_range(cuda, n);
  }
  ft_text_add(cuda->text, "  return ");
  write_operand(cuda, root);
  ft_text_add(cuda->text, ";\n}\n\n");
  return (struct ft_range_values){of_row, of_column};
}
