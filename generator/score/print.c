/* print.c: expressions as Lua text.
 * in -> out: nodes -> text, with the parentheses that Lua's precedence asks for and no others. */
#include "generator/score/print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct printer {
  const struct ft_score *score;
  struct ft_text *text;
  int uses[FT_SCORE_NODES];
  int locals[FT_SCORE_NODES]; /* number of the local that holds the node; 0: none does */
};

static void print_constant(const struct ft_node *node, struct ft_text *text) {
  const double value = node->value;
  if (node->type == FT_VALUE_BOOL) {
    ft_text_add(text, "%s", value != 0 ? "true" : "false");
  } else if (node->type == FT_VALUE_INT) {
    ft_text_add(text, "%.0f", value);
  } else if (isnan(value)) {
    ft_text_add(text, "nan");
  } else if (isinf(value)) {
    ft_text_add(text, "%sinf", value < 0 ? "-" : "");
  } else {
    char digits[40];
    for (int precision = 6; precision <= 17; ++precision) {
      (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
      if (strtod(digits, NULL) == value) break;
    }
    ft_text_add(text, strpbrk(digits, ".e") == NULL ? "%s.0" : "%s", digits);
  }
}

static void print_node(struct printer *printer, int number, int precedence);

static void print_call(struct printer *printer, const char *name, const struct ft_node *node) {
  ft_text_add(printer->text, "%s(", name);
  for (int i = 0; i < node->operand_count; ++i) {
    if (i > 0) ft_text_add(printer->text, ", ");
    print_node(printer, node->operands[i], 0);
  }
  ft_text_add(printer->text, ")");
}

static void print_operation(struct printer *printer, const struct ft_node *node, int within) {
  const char *const text = ft_operation_text(node->operation);
  const int precedence = ft_operation_precedence(node->operation);
  if (precedence == 0) {
    print_call(printer, text, node);
    return;
  }
  if (precedence < within) ft_text_add(printer->text, "(");
  if (node->operand_count == 1) {
    ft_text_add(printer->text, node->operation == FT_OP_NOT ? "%s " : "%s", text);
    print_node(printer, node->operands[0], precedence + 1);
  } else { /* a comparison of a comparison has parentheses on both sides */
    print_node(printer, node->operands[0], precedence + (precedence == 3));
    ft_text_add(printer->text, " %s ", text);
    print_node(printer, node->operands[1], precedence + 1);
  }
  if (precedence < within) ft_text_add(printer->text, ")");
}

/* `precedence` is the least that needs no parentheses here. */
static void print_node(struct printer *printer, int number, int precedence) {
  const struct ft_score *const score = printer->score;
  const struct ft_node *const node = ft_node(&score->expression, number);
  if (printer->locals[number] > 0) {
    ft_text_add(printer->text, "_%d", printer->locals[number]);
    return;
  }
  switch (node->operation) {
  case FT_OP_CONSTANT: print_constant(node, printer->text); return;
  case FT_OP_SYMBOL:
    ft_text_add(printer->text, "%s", ft_symbol_name((enum ft_symbol)node->number));
    return;
  case FT_OP_SCALAR: ft_text_add(printer->text, "%s", score->scalars[node->number].name); return;
  case FT_OP_READ: print_call(printer, score->tensors[node->number].name, node); return;
  default: print_operation(printer, node, precedence);
  }
}

/* Operands have lower numbers: one pass down counts all uses. */
static void count_uses(struct printer *printer, const struct ft_named_node *rows, int count) {
  for (int i = 0; i < count; ++i) printer->uses[rows[i].node] += 1;
  for (int n = printer->score->expression.count - 1; n >= 0; --n) {
    const struct ft_node *const node = ft_node(&printer->score->expression, n);
    for (int i = 0; printer->uses[n] > 0 && i < node->operand_count; ++i)
      printer->uses[node->operands[i]] += 1;
  }
}

static void print_locals(struct printer *printer) {
  int count = 0;
  for (int n = 0; n < printer->score->expression.count; ++n) {
    const struct ft_node *const node = ft_node(&printer->score->expression, n);
    if (printer->uses[n] < 2 || node->operation < FT_OP_READ) continue;
    ft_text_add(printer->text, "local _%d = ", count + 1);
    print_node(printer, n, 0);
    ft_text_add(printer->text, "\n");
    printer->locals[n] = ++count;
  }
}

static struct printer *printer_make(const struct ft_score *score, struct ft_text *text) {
  struct printer *const printer = calloc(1, sizeof *printer);
  if (printer == NULL) {
    text->failed = true;
    return NULL;
  }
  printer->score = score;
  printer->text = text;
  return printer;
}

void ft_score_print_node(const struct ft_score *score, int node, struct ft_text *text) {
  struct printer *const printer = printer_make(score, text);
  if (printer == NULL) return;
  print_node(printer, node, 0);
  free(printer);
}

void ft_score_print_nodes(const struct ft_score *score, const struct ft_named_node *rows, int count,
                          struct ft_text *text) {
  struct printer *const printer = printer_make(score, text);
  if (printer == NULL) return;
  count_uses(printer, rows, count);
  print_locals(printer);
  for (int i = 0; i < count; ++i) {
    ft_text_add(text, "%s = ", rows[i].name);
    print_node(printer, rows[i].node, 0);
    ft_text_add(text, "\n");
  }
  free(printer);
}

static void print_declarations(const struct ft_score *score, struct ft_text *text) {
  struct printer *const printer = printer_make(score, text);
  if (printer == NULL) return;
  for (int i = 0; i < score->scalar_count; ++i) {
    const struct ft_score_scalar *const scalar = &score->scalars[i];
    ft_text_add(text, "local %s = scalar(\"%s\", \"%s\")\n", scalar->name, scalar->name,
                ft_value_type_name(scalar->type));
  }
  for (int i = 0; i < score->tensor_count; ++i) {
    const struct ft_score_tensor *const tensor = &score->tensors[i];
    ft_text_add(text, "local %s = tensor(\"%s\", \"%s\"", tensor->name, tensor->name,
                ft_captured_dtype_name(tensor->dtype));
    for (int dim = 0; dim < tensor->dims; ++dim) {
      ft_text_add(text, ", ");
      print_node(printer, tensor->extents[dim], 0);
    }
    ft_text_add(text, ")\n");
  }
  free(printer);
}

void ft_score_print(const struct ft_score *score, struct ft_text *text) {
  const struct ft_named_node rows[] = {{"score", score->score}, {"visible", score->visible}};
  print_declarations(score, text);
  const bool is_always = ft_node(&score->expression, score->visible)->operation == FT_OP_CONSTANT &&
                         ft_node(&score->expression, score->visible)->value != 0;
  ft_score_print_nodes(score, rows, is_always ? 1 : 2, text);
}
