/* derive.c: a score function differentiated.
 * in -> out: score -> nodes of the derivatives, from the score down to its leaves: each node hands
 * d score / d node on to its operands. */
#include "generator/score/derive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/simplify.h"
#include "generator/status.h"

enum { FACTORS = 12, NO_NODE = -1 };

/* d score / d node as factor * up[0] * up[1] ... / down[0] / down[1] ...: what is multiplied and
 * divided by cancels, so that the derivative of cap * tanh(s / cap) knows no cap. */
struct product {
  double factor;
  int up[FACTORS], down[FACTORS];
  int ups, downs;
};

struct pass {
  struct ft_score *score;
  struct ft_expression *expression;
  uint64_t wanted;
  struct product products[FT_SCORE_NODES];
  bool reached[FT_SCORE_NODES]; /* products[n] counts */
  bool below[FT_SCORE_NODES];   /* of floor_below */
  int blocked;                  /* the first floor that something wanted goes through */
};

static int constant(struct pass *pass, double value) {
  return ft_constant(pass->expression, FT_VALUE_FLOAT, value);
}

static int multiplied(struct pass *pass, const int *nodes, int count) {
  int result = constant(pass, 1);
  for (int i = 0; i < count; ++i) result = ft_binary(pass->expression, FT_OP_MUL, result, nodes[i]);
  return result;
}

static int node_of(struct pass *pass, const struct product *product) {
  int node = multiplied(pass, product->up, product->ups);
  if (product->downs > 0)
    node = ft_binary(pass->expression, FT_OP_DIV, node,
                     multiplied(pass, product->down, product->downs));
  return ft_binary(pass->expression, FT_OP_MUL, node, constant(pass, product->factor));
}

static struct product product_of(int node) {
  return (struct product){.factor = 1, .up = {node}, .ups = 1};
}

/* Takes the node out of the list, if it is there. */
static bool cancels(int *nodes, int *count, int node) {
  for (int i = 0; i < *count; ++i) {
    if (nodes[i] != node) continue;
    nodes[i] = nodes[--*count];
    return true;
  }
  return false;
}

static struct product times(struct pass *pass, struct product product, int node) {
  const struct ft_node *const known = ft_node(pass->expression, node);
  if (known->operation == FT_OP_CONSTANT) {
    product.factor *= known->value;
    return product;
  }
  if (cancels(product.down, &product.downs, node)) return product;
  if (product.ups == FACTORS) product = product_of(node_of(pass, &product));
  product.up[product.ups++] = node;
  return product;
}

static struct product divided(struct pass *pass, struct product product, int node) {
  const struct ft_node *const known = ft_node(pass->expression, node);
  if (known->operation == FT_OP_CONSTANT) {
    product.factor /= known->value;
    return product;
  }
  if (cancels(product.up, &product.ups, node)) return product;
  if (product.downs == FACTORS) product = product_of(node_of(pass, &product));
  product.down[product.downs++] = node;
  return product;
}

/* Adds to d score / d node. */
static void hand_on(struct pass *pass, int node, struct product product) {
  if (!(ft_node(pass->expression, node)->sources & pass->wanted)) return;
  if (!pass->reached[node]) {
    pass->reached[node] = true;
    pass->products[node] = product;
    return;
  }
  const int sum = ft_binary(pass->expression, FT_OP_ADD, node_of(pass, &pass->products[node]),
                            node_of(pass, &product));
  pass->products[node] = product_of(sum);
}

/* Where the condition holds the derivative goes to `then`, else to `other`. */
static void hand_on_where(struct pass *pass, int condition, int then, int other,
                          struct product product) {
  const int node = node_of(pass, &product), zero = constant(pass, 0);
  hand_on(pass, then, product_of(ft_where(pass->expression, condition, node, zero)));
  hand_on(pass, other, product_of(ft_where(pass->expression, condition, zero, node)));
}

static struct product negative(struct product product) {
  product.factor = -product.factor;
  return product;
}

/* d tanh = 1 - tanh^2, d sigmoid = sigmoid (1 - sigmoid): of the value itself. */
static int slope_of(struct pass *pass, enum ft_operation operation, int value) {
  struct ft_expression *const e = pass->expression;
  const int one = constant(pass, 1);
  if (operation == FT_OP_TANH)
    return ft_binary(e, FT_OP_SUB, one, ft_binary(e, FT_OP_MUL, value, value));
  return ft_binary(e, FT_OP_MUL, value, ft_binary(e, FT_OP_SUB, one, value));
}

static void hand_on_quotient(struct pass *pass, int quotient, int a, int b,
                             struct product product) {
  const struct product by_dividend = divided(pass, product, b);
  hand_on(pass, a, by_dividend);
  hand_on(pass, b, negative(times(pass, by_dividend, quotient)));
}

static void hand_on_product(struct pass *pass, int a, int b, struct product product) {
  if (a == b) {
    product.factor *= 2;
    hand_on(pass, a, times(pass, product, a));
    return;
  }
  hand_on(pass, a, times(pass, product, b));
  hand_on(pass, b, times(pass, product, a));
}

/* The floor through which an integer, or the index of a read, depends on what is wanted. */
static int floor_below(struct pass *pass, int number) {
  bool *const below = pass->below;
  memset(below, 0, sizeof pass->below);
  below[number] = true;
  for (int n = number; n >= 0; --n) {
    const struct ft_node *const node = ft_node(pass->expression, n);
    if (!below[n] || !(node->sources & pass->wanted)) continue;
    if (node->operation == FT_OP_FLOOR) return n;
    const int first = node->operation == FT_OP_WHERE; /* its condition compares */
    for (int i = first; i < node->operand_count; ++i)
      below[node->operands[i]] = ft_node(pass->expression, node->operands[i])->type == FT_VALUE_INT;
  }
  return NO_NODE;
}

static void take(struct pass *pass, int number) {
  struct ft_expression *const e = pass->expression;
  const struct ft_node node = *ft_node(e, number);
  const struct product product = pass->products[number];
  const int a = node.operands[0], b = node.operands[1];
  switch (node.operation) {
  case FT_OP_ADD:
    hand_on(pass, a, product);
    hand_on(pass, b, product);
    return;
  case FT_OP_SUB:
    hand_on(pass, a, product);
    hand_on(pass, b, negative(product));
    return;
  case FT_OP_MUL: hand_on_product(pass, a, b, product); return;
  case FT_OP_DIV: hand_on_quotient(pass, number, a, b, product); return;
  case FT_OP_NEG: hand_on(pass, a, negative(product)); return;
  case FT_OP_ABS: {
    const int is_negative = ft_binary(e, FT_OP_LT, a, constant(pass, 0));
    const int node_number = node_of(pass, &product);
    const int opposite = ft_unary(e, FT_OP_NEG, node_number);
    hand_on(pass, a, product_of(ft_where(e, is_negative, opposite, node_number)));
    return;
  }
  case FT_OP_MIN: hand_on_where(pass, ft_binary(e, FT_OP_LE, a, b), a, b, product); return;
  case FT_OP_MAX: hand_on_where(pass, ft_binary(e, FT_OP_LE, b, a), a, b, product); return;
  case FT_OP_EXP: hand_on(pass, a, times(pass, product, number)); return;
  case FT_OP_LOG: hand_on(pass, a, divided(pass, product, a)); return;
  case FT_OP_TANH:
  case FT_OP_SIGMOID:
    hand_on(pass, a, times(pass, product, slope_of(pass, node.operation, number)));
    return;
  case FT_OP_WHERE: hand_on_where(pass, a, b, node.operands[2], product); return;
  case FT_OP_READ: /* by its indices; its own value is a leaf */
  case FT_OP_FLOAT:
    if (pass->blocked == NO_NODE) pass->blocked = floor_below(pass, number);
    return;
  default: return; /* leaves */
  }
}

/* What a leaf is called in a message. */
static const char *leaf_name(const struct ft_score *score, uint64_t source) {
  for (int i = 0; i < score->tensor_count; ++i)
    if (source == ft_source_tensor(i)) return score->tensors[i].name;
  for (int i = 0; i < score->scalar_count; ++i)
    if (source == ft_source_scalar(i)) return score->scalars[i].name;
  return "s";
}

static int refuse_blocked(const struct pass *pass) {
  const struct ft_node *const node = ft_node(pass->expression, pass->blocked);
  uint64_t sources = node->sources & pass->wanted;
  sources &= ~sources + 1; /* the first of them */
  return ft_fail(FT_E_ARGUMENT,
                 "%s:%d: score is not differentiable by '%s': floor makes an "
                 "integer of it",
                 pass->score->name, node->line, leaf_name(pass->score, sources));
}

/* The bit of a leaf itself, without those of its indices. */
static uint64_t own_source(const struct ft_node *node) {
  return node->operation == FT_OP_READ     ? ft_source_tensor(node->number)
         : node->operation == FT_OP_SCALAR ? ft_source_scalar(node->number)
         : node->operation == FT_OP_SYMBOL ? ft_source_symbol(node->number)
                                           : 0;
}

uint64_t ft_derivatives_sources(const struct ft_score *score,
                                const struct ft_derivatives *derivatives) {
  uint64_t sources = 0;
  for (int i = 0; i < derivatives->count; ++i)
    sources |= own_source(ft_node(&score->expression, derivatives->others[i].leaf));
  return sources;
}

static int collect(struct pass *pass, int nodes, struct ft_derivatives *derivatives) {
  uint64_t found = 0;
  for (int n = 0; n < nodes; ++n) {
    const struct ft_node node = *ft_node(pass->expression, n);
    const uint64_t own = own_source(&node);
    if (!pass->reached[n] || !(own & pass->wanted)) continue;
    found |= own;
    const int derivative = node_of(pass, &pass->products[n]);
    if (own == ft_source_symbol(FT_SYMBOL_S)) {
      derivatives->by_s = derivative;
      continue;
    }
    if (derivatives->count == FT_DERIVATIVES)
      return ft_fail(FT_E_ARGUMENT, "%s:%d: score reads tensors in more than %d places",
                     pass->score->name, node.line, FT_DERIVATIVES);
    derivatives->others[derivatives->count++] = (struct ft_derivative){n, derivative};
  }
  const uint64_t s = ft_source_symbol(FT_SYMBOL_S);
  const uint64_t depends = ft_node(pass->expression, pass->score->score)->sources;
  uint64_t lost = pass->wanted & ~found & (depends | ~s); /* s may well be absent */
  lost &= ~lost + 1;
  if (lost == 0) return FT_OK;
  const int line = ft_node(pass->expression, pass->score->score)->line; /* 0: it is plain s */
  char place[16] = "";
  if (line > 0) (void)snprintf(place, sizeof place, ":%d", line);
  return ft_fail(FT_E_ARGUMENT, "%s%s: score is not differentiable by '%s': it is %s",
                 pass->score->name, place, leaf_name(pass->score, lost),
                 lost & depends ? "only compared" : "not in it");
}

/* Integers have no derivative. */
static int check_wanted(const struct ft_score *score, uint64_t wanted) {
  for (int i = 0; i < score->tensor_count; ++i)
    if (wanted & ft_source_tensor(i) &&
        ft_captured_dtype_type(score->tensors[i].dtype) != FT_VALUE_FLOAT)
      return ft_fail(FT_E_ARGUMENT,
                     "%s: tensor '%s' has dtype %s; allowed for a gradient: fp32, "
                     "fp16, bf16",
                     score->name, score->tensors[i].name,
                     ft_captured_dtype_name(score->tensors[i].dtype));
  for (int i = 0; i < score->scalar_count; ++i)
    if (wanted & ft_source_scalar(i) && score->scalars[i].type != FT_VALUE_FLOAT)
      return ft_fail(FT_E_ARGUMENT, "%s: scalar '%s' has type int; allowed for a gradient: float",
                     score->name, score->scalars[i].name);
  return FT_OK;
}

int ft_score_derive(struct ft_score *score, uint64_t wanted, struct ft_derivatives *derivatives) {
  *derivatives =
      (struct ft_derivatives){.by_s = 0, .leaf_s = ft_symbol(&score->expression, FT_SYMBOL_S)};
  FT_TRY(check_wanted(score, wanted));
  struct pass *const pass = calloc(1, sizeof *pass);
  if (pass == NULL) return ft_fail(FT_E_MEMORY, "no memory to differentiate %s", score->name);
  pass->score = score;
  pass->expression = &score->expression;
  pass->wanted = wanted | ft_source_symbol(FT_SYMBOL_S);
  pass->blocked = NO_NODE;
  const int nodes = score->expression.count;
  hand_on(pass, score->score, (struct product){.factor = 1});
  for (int n = score->score; n >= 0; --n)
    if (pass->reached[n]) take(pass, n);
  int status = pass->blocked != NO_NODE ? refuse_blocked(pass) : collect(pass, nodes, derivatives);
  if (status == FT_OK && score->expression.full)
    status = ft_fail(FT_E_ARGUMENT, "%s: score and its derivative take more than %d operations",
                     score->name, FT_SCORE_NODES);
  free(pass);
  return status;
}
