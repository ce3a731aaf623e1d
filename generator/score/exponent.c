/* exponent.c: a score as the exponent of 2 that the softmax takes, as a sum by levels.
 * in -> out: score -> terms, each multiplied by log2(e) where it is computed least often -> sum. */
#include "generator/score/exponent.h"

#include <math.h>
#include <stdlib.h>

#include "generator/score/lower.h"
#include "generator/score/simplify.h"
#include "generator/status.h"

enum { STEPS_MOST = 256 }; /* nodes of a text may stand for sums of exponentially many terms */

static const double LOG2_E = 1.4426950408889634;

/* Nodes; 0, the constant 0.0: there is no such term. */
struct sum {
  struct ft_expression *expression;
  const int *raw_nodes; /* of nodes: the same of q . k in place of s */
  int steps;
  bool sided;  /* |x| is made into x times the side */
  int of_raw;  /* the factor of q . k */
  int rows;    /* what is the same for a row */
  int stepped; /* what is the same for a row in a step */
  int along;   /* the factor of the key's distance from the step's first */
  int columns, elements;
  int absolute; /* the x of |x| */
  int sigmoid, sigmoids;
};

static bool is(const struct sum *sum, int node, enum ft_operation operation) {
  return ft_node(sum->expression, node)->operation == operation;
}

static int operand(const struct sum *sum, int node, int i) {
  return ft_node(sum->expression, node)->operands[i];
}

static bool depends_on(const struct sum *sum, int node, enum ft_symbol symbol) {
  return (ft_node(sum->expression, node)->sources & ft_source_symbol((int)symbol)) != 0;
}

static bool is_of_head(const struct sum *sum, int node) {
  return ft_level_of(ft_node(sum->expression, node)) == FT_LEVEL_HEAD;
}

static int number(struct sum *sum, double value) {
  return ft_constant(sum->expression, FT_VALUE_FLOAT, value);
}

static int times(struct sum *sum, int a, int b) {
  return ft_binary(sum->expression, FT_OP_MUL, a, b);
}

static void add(struct sum *sum, int *to, int node) {
  *to = ft_binary(sum->expression, FT_OP_ADD, *to, node);
}

static int symbol(struct sum *sum, enum ft_symbol which) {
  return ft_symbol(sum->expression, which);
}

/* a where the product is a * b, b of a head; else -1. */
static int other_factor(const struct sum *sum, int product, int *of_head) {
  if (!is(sum, product, FT_OP_MUL)) return -1;
  for (int i = 0; i < 2; ++i) {
    *of_head = operand(sum, product, i);
    if (is_of_head(sum, *of_head)) return operand(sum, product, 1 - i);
  }
  return -1;
}

/* ---- terms without s ---- */

/* x = +-j + what has no j: x of the step's first key, and the sign. False: it is not of this form.
 */
static bool split_position(struct sum *sum, int x, int *first, int *sign) {
  const bool adds = is(sum, x, FT_OP_ADD), subtracts = is(sum, x, FT_OP_SUB);
  if (++sum->steps > STEPS_MOST) return false;
  if (is(sum, x, FT_OP_FLOAT) && is(sum, operand(sum, x, 0), FT_OP_SYMBOL) &&
      depends_on(sum, x, FT_SYMBOL_J)) {
    *first = symbol(sum, FT_SYMBOL_FIRST_J);
    *sign = 1;
    return true;
  }
  if (is(sum, x, FT_OP_NEG) && split_position(sum, operand(sum, x, 0), first, sign)) {
    *first = ft_unary(sum->expression, FT_OP_NEG, *first);
    *sign = -*sign;
    return true;
  }
  if (!adds && !subtracts) return false;
  const int a = operand(sum, x, 0), b = operand(sum, x, 1);
  const bool in_a = depends_on(sum, a, FT_SYMBOL_J), in_b = depends_on(sum, b, FT_SYMBOL_J);
  if (in_a == in_b || !split_position(sum, in_a ? a : b, first, sign)) return false;
  *first = ft_binary(sum->expression, adds ? FT_OP_ADD : FT_OP_SUB, in_a ? *first : a,
                     in_a ? b : *first);
  if (subtracts && in_b) *sign = -*sign;
  return true;
}

/* Whether x is + or - the query, and what is of the head or has j. */
static bool follows_query(struct sum *sum, int x) {
  if (++sum->steps > STEPS_MOST || !depends_on(sum, x, FT_SYMBOL_I)) return false;
  if (is(sum, x, FT_OP_FLOAT)) return is(sum, operand(sum, x, 0), FT_OP_SYMBOL);
  if (is(sum, x, FT_OP_NEG)) return follows_query(sum, operand(sum, x, 0));
  if (!is(sum, x, FT_OP_ADD) && !is(sum, x, FT_OP_SUB)) return false;
  const int a = operand(sum, x, 0), b = operand(sum, x, 1);
  const bool in_a = depends_on(sum, a, FT_SYMBOL_I);
  return in_a != depends_on(sum, b, FT_SYMBOL_I) && follows_query(sum, in_a ? a : b);
}

/* Adds factor x position. The position is that of the step's first key plus the distance from it,
 * and each of the two has a term of its own. */
static void add_position(struct sum *sum, int first, int sign, int factor) {
  add(sum, &sum->stepped, times(sum, factor, first));
  add(sum, &sum->along, sign > 0 ? factor : ft_unary(sum->expression, FT_OP_NEG, factor));
}

/* factor |x|. */
static bool add_absolute(struct sum *sum, int x, int factor) {
  int first, sign;
  if (sum->absolute != 0 && sum->absolute != x) return false;
  if (!split_position(sum, x, &first, &sign)) return false;
  sum->absolute = x;
  if (sum->sided) {
    add_position(sum, first, sign, times(sum, factor, symbol(sum, FT_SYMBOL_SIDE)));
    return true;
  }
  const enum ft_operation operation = sign > 0 ? FT_OP_ADD : FT_OP_SUB;
  const int again = ft_binary(sum->expression, operation, first, symbol(sum, FT_SYMBOL_DELTA));
  add(sum, &sum->elements, times(sum, factor, ft_unary(sum->expression, FT_OP_ABS, again)));
  return true;
}

static void add_plain(struct sum *sum, int node, int factor) {
  int y = node, of_head, first, sign;
  for (int rest; (rest = other_factor(sum, y, &of_head)) >= 0 && sum->steps++ < STEPS_MOST;
       y = rest)
    factor = times(sum, factor, of_head);
  if (is(sum, y, FT_OP_ABS) && add_absolute(sum, operand(sum, y, 0), factor)) return;
  if (depends_on(sum, y, FT_SYMBOL_J) && split_position(sum, y, &first, &sign)) {
    add_position(sum, first, sign, factor);
    return;
  }
  const enum ft_level level = ft_level_of(ft_node(sum->expression, y));
  int *const to = level == FT_LEVEL_ELEMENT  ? &sum->elements
                  : level == FT_LEVEL_COLUMN ? &sum->columns
                                             : &sum->rows;
  add(sum, to, times(sum, y, factor));
}

/* ---- terms with s ---- */

/* node times factor, multiplied out as far as that moves the factor to what a head has. */
static int multiplied(struct sum *sum, int node, int factor) {
  int of_head;
  if (is(sum, node, FT_OP_SYMBOL) && depends_on(sum, node, FT_SYMBOL_S))
    return times(sum, symbol(sum, FT_SYMBOL_RAW), times(sum, symbol(sum, FT_SYMBOL_SCALE), factor));
  const int rest = other_factor(sum, node, &of_head);
  if (rest >= 0 && ++sum->steps < STEPS_MOST)
    return multiplied(sum, rest, times(sum, of_head, factor));
  return times(sum, sum->raw_nodes[node], factor);
}

/* factor / (1 + 2^-(bits node)) */
static void add_sigmoid(struct sum *sum, int node, int factor, double bits) {
  const int argument = multiplied(sum, node, number(sum, bits));
  const int sigmoid = ft_unary(sum->expression, FT_OP_SIGMOID2, argument);
  sum->sigmoids += sigmoid != sum->sigmoid;
  sum->sigmoid = sigmoid;
  add(sum, &sum->elements, times(sum, sigmoid, factor));
}

/* The sigmoid of q . k times what a head has, and that times what a head has: besides, nothing
 * differs from key to key. */
static bool stands_alone(const struct sum *sum) {
  if (sum->of_raw != 0 || sum->along != 0 || sum->columns != 0) return false;
  int of_head;
  const int raw = other_factor(sum, operand(sum, sum->sigmoid, 0), &of_head);
  const bool is_of_raw =
      raw >= 0 && is(sum, raw, FT_OP_SYMBOL) && depends_on(sum, raw, FT_SYMBOL_RAW);
  return is_of_raw && (sum->elements == sum->sigmoid ||
                       other_factor(sum, sum->elements, &of_head) == sum->sigmoid);
}

static void add_terms(struct sum *sum, int node, int factor) {
  const struct ft_node of = *ft_node(sum->expression, node);
  const int minus = ft_unary(sum->expression, FT_OP_NEG, factor);
  int of_head;
  if (!depends_on(sum, node, FT_SYMBOL_S)) {
    add_plain(sum, node, factor);
  } else if (++sum->steps > STEPS_MOST) {
    add(sum, &sum->elements, times(sum, sum->raw_nodes[node], factor));
  } else if (of.operation == FT_OP_SYMBOL) {
    add(sum, &sum->of_raw, times(sum, factor, symbol(sum, FT_SYMBOL_SCALE)));
  } else if (of.operation == FT_OP_ADD || of.operation == FT_OP_SUB) {
    add_terms(sum, of.operands[0], factor);
    add_terms(sum, of.operands[1], of.operation == FT_OP_ADD ? factor : minus);
  } else if (of.operation == FT_OP_NEG) {
    add_terms(sum, of.operands[0], minus);
  } else if (of.operation == FT_OP_TANH) { /* 2 sigmoid(2 x) - 1 */
    add(sum, &sum->rows, minus);
    add_sigmoid(sum, of.operands[0], times(sum, number(sum, 2), factor), 2 * LOG2_E);
  } else if (of.operation == FT_OP_SIGMOID) {
    add_sigmoid(sum, of.operands[0], factor, LOG2_E);
  } else {
    const int rest = other_factor(sum, node, &of_head);
    if (rest >= 0)
      add_terms(sum, rest, times(sum, factor, of_head));
    else
      add(sum, &sum->elements, times(sum, sum->raw_nodes[node], factor));
  }
}

/* ---- */

/* with_keys: else without what is of a key. */
static int total(struct sum *sum, bool with_keys) {
  int node = symbol(sum, FT_SYMBOL_MINUS_MAX);
  const int along = times(sum, sum->along, symbol(sum, FT_SYMBOL_DELTA));
  const int of_raw = times(sum, sum->of_raw, symbol(sum, FT_SYMBOL_RAW));
  add(sum, &node, sum->rows);
  add(sum, &node, sum->stepped);
  if (with_keys && sum->along != 0) add(sum, &node, along);
  if (with_keys) add(sum, &node, sum->columns);
  add(sum, &node, sum->elements);
  if (sum->of_raw != 0) add(sum, &node, of_raw);
  return node;
}

static bool adds_by_key(const struct sum *sum) {
  return sum->of_raw != 0 && sum->elements == 0 && (sum->along != 0 || sum->columns != 0);
}

/* Each node with q . k times the scale in place of s. */
static int *make_raw_nodes(struct ft_expression *expression) {
  const int count = expression->count;
  int *const nodes = malloc((size_t)count * sizeof *nodes);
  if (nodes == NULL) return NULL;
  const int s = ft_binary(expression, FT_OP_MUL, ft_symbol(expression, FT_SYMBOL_RAW),
                          ft_symbol(expression, FT_SYMBOL_SCALE));
  for (int n = 0; n < count; ++n) {
    const struct ft_node node = *ft_node(expression, n);
    int operands[FT_SCORE_DIMS] = {0};
    for (int i = 0; i < node.operand_count; ++i) operands[i] = nodes[node.operands[i]];
    nodes[n] = n;
    if ((node.sources & ft_source_symbol(FT_SYMBOL_S)) == 0) continue;
    struct ft_node read = node;
    for (int i = 0; i < node.operand_count; ++i) read.operands[i] = operands[i];
    read.sources &= ~ft_source_symbol(FT_SYMBOL_S);
    nodes[n] = node.operation == FT_OP_SYMBOL ? s
               : node.operation == FT_OP_READ ? ft_expression_add(expression, read)
                                              : ft_simplified(expression, node.operation, operands);
  }
  return nodes;
}

int ft_score_exponent(struct ft_score *score, int lowered_score, struct ft_exponent *exponent) {
  struct ft_expression *const expression = &score->expression;
  int *const raw_nodes = make_raw_nodes(expression);
  if (raw_nodes == NULL) return ft_fail(FT_E_MEMORY, "no memory for the exponent of a score");
  *exponent = (struct ft_exponent){0};
  struct sum general = {.expression = expression, .raw_nodes = raw_nodes};
  const int factor = number(&general, LOG2_E);
  add_terms(&general, lowered_score, factor);
  exponent->general = total(&general, true);
  exponent->keyless = total(&general, false);
  exponent->key_slope = general.along;
  exponent->key_term = general.columns;
  exponent->key_unit = general.of_raw;
  exponent->has_sigmoid = general.sigmoids == 1;
  if (exponent->has_sigmoid) {
    exponent->sigmoid = general.sigmoid;
    exponent->argument = operand(&general, general.sigmoid, 0);
    exponent->sigmoid_alone = stands_alone(&general);
  }
  exponent->adds_by_key = adds_by_key(&general);
  if (general.absolute != 0) {
    struct sum sided = {.expression = expression, .raw_nodes = raw_nodes, .sided = true};
    int sign;
    add_terms(&sided, lowered_score, factor);
    exponent->sided = total(&sided, true);
    exponent->sided_keyless = total(&sided, false);
    exponent->sided_key_slope = sided.along;
    const bool by_key = adds_by_key(&sided);
    exponent->has_sides = split_position(&sided, sided.absolute, &exponent->first_x, &sign);
    if (exponent->has_sides) {
      exponent->adds_by_key = by_key;
      exponent->x_grows = sign > 0;
      exponent->fades = by_key && sided.columns == 0 && general.columns == 0 &&
                        follows_query(&sided, sided.absolute);
    }
  }
  exponent->reads_keys = general.columns != 0 && general.elements == 0;
  free(raw_nodes);
  return FT_OK;
}
