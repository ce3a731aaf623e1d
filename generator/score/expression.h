/* expression.h: expressions of score functions, as nodes of which each exists once.
 * in -> out: operation, type, operands -> number of the node.
 *
 * A node's operands have lower numbers than the node. Integers are of 32 bits, an expression whose
 * value does not fit has no defined value; floats are fp32 in kernels, float64 in the interpreter.
 */
#ifndef GENERATOR_SCORE_EXPRESSION_H
#define GENERATOR_SCORE_EXPRESSION_H

#include <stdbool.h>
#include <stdint.h>

enum ft_value_type { FT_VALUE_BOOL, FT_VALUE_INT, FT_VALUE_FLOAT };

enum ft_operation {
#define OP(name, text, precedence, operands) FT_OP_##name,
#include "generator/score/operations.def"
#undef OP
  FT_OPERATIONS
};

/* What an expression may speak of. ORDER SYMBOL */
enum ft_symbol {
  FT_SYMBOL_S,  /* the score: scale q . k */
  FT_SYMBOL_B,  /* batch entry */
  FT_SYMBOL_H,  /* query head */
  FT_SYMBOL_KV, /* its head of K and V */
  FT_SYMBOL_I,  /* query */
  FT_SYMBOL_J,  /* key */
  FT_SYMBOL_NQ, /* queries and keys of the sequence */
  FT_SYMBOL_NK,
  FT_SYMBOL_BATCH, /* batch entries, query heads, heads of K and V */
  FT_SYMBOL_HEADS,
  FT_SYMBOL_KV_HEADS,
  FT_SYMBOLS,
  /* Not of texts: what exponents are made of (exponent.h). */
  FT_SYMBOL_SCALE = FT_SYMBOLS, /* of q . k */
  FT_SYMBOL_RAW,                /* q . k */
  FT_SYMBOL_MINUS_MAX,          /* of the row, in base 2 */
  FT_SYMBOL_FIRST_J,            /* the first key of the step, as a float */
  FT_SYMBOL_DELTA,              /* j less that key */
  FT_SYMBOL_SIDE,               /* 1 or -1: on which side of the query the keys of the step are */
  FT_SYMBOLS_ALL
};

enum {
  FT_SCORE_NODES = 4096,
  FT_SCORE_TENSORS = 8,
  FT_SCORE_SCALARS = 16,
  FT_SCORE_DIMS = 4,   /* of a captured tensor */
  FT_OPERANDS_MOST = 3 /* of an operation */
};

/* Queries and keys of a sequence with a score function: their numbers, and sums and differences of
 * two, are exact as fp32. */
enum { FT_SCORE_LENGTH_MOST = 1 << 23 };

/* Bits of what a value is computed from. */
static inline uint64_t ft_source_symbol(int symbol) {
  return (uint64_t)1 << symbol;
}
static inline uint64_t ft_source_tensor(int tensor) {
  return (uint64_t)1 << (FT_SYMBOLS_ALL + tensor);
}
static inline uint64_t ft_source_scalar(int scalar) {
  return (uint64_t)1 << (FT_SYMBOLS_ALL + FT_SCORE_TENSORS + scalar);
}

struct ft_node {
  enum ft_operation operation;
  enum ft_value_type type;
  int operands[FT_SCORE_DIMS];
  int operand_count;
  int number;         /* of the symbol, the scalar, the tensor */
  double value;       /* of a constant */
  double least, most; /* an integer's value lies between them */
  uint64_t sources;   /* what it is computed from */
  int line;           /* of the text, where it was first made; 0: by the generator */
};

struct ft_expression {
  struct ft_node *nodes; /* owned; node 0 is the constant 0.0 */
  int *slots;            /* hash table of node numbers; owned */
  int count;
  bool full; /* there were more than FT_SCORE_NODES: later nodes are node 0 */
  int line;  /* goes into new nodes */
};

/* The Lua text of an operation, its precedence, how many operands it has. */
const char *ft_operation_text(enum ft_operation operation);
int ft_operation_precedence(enum ft_operation operation);
int ft_operation_operands(enum ft_operation operation);

const char *ft_symbol_name(enum ft_symbol symbol);
const char *ft_value_type_name(enum ft_value_type type);

int ft_expression_open(struct ft_expression *expression);
void ft_expression_close(struct ft_expression *expression);

static inline const struct ft_node *ft_node(const struct ft_expression *expression, int node) {
  return &expression->nodes[node];
}

/* The number of the node that is the same as `node`: one that exists, or a new one. Sources and
 * range are filled in; those of a leaf are the caller's. */
int ft_expression_add(struct ft_expression *expression, struct ft_node node);

/* Leaves. A tensor is read at `operands` of the node; `wide` says what its integers may be. */
int ft_constant(struct ft_expression *expression, enum ft_value_type type, double value);
int ft_symbol(struct ft_expression *expression, enum ft_symbol symbol);

#endif
