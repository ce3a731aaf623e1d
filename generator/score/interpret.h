/* interpret.h: expressions by number, in float64.
 * in -> out: nodes, positions, scalars, tensors -> values. References use it; what kernels compute
 * is made from the same nodes by other files (cuda.h). */
#ifndef GENERATOR_SCORE_INTERPRET_H
#define GENERATOR_SCORE_INTERPRET_H

#include "generator/score/score.h"

/* A captured tensor on the host. Strides are in elements, 0 to broadcast. An index beyond an end
 * reads the element at that end. */
struct ft_captured {
  const void *data;
  int64_t extents[FT_SCORE_DIMS], strides[FT_SCORE_DIMS];
};

struct ft_score_inputs {
  double symbols[FT_SYMBOLS_ALL]; /* by enum ft_symbol */
  double scalars[FT_SCORE_SCALARS];
  struct ft_captured tensors[FT_SCORE_TENSORS];
};

struct ft_interpreter {
  const struct ft_score *score;
  int *nodes;     /* to be computed, in this order; owned */
  double *values; /* of each node of the expression; owned */
  int count;
};

/* The score must stay as it is while the interpreter is in use. */
int ft_interpreter_open(struct ft_interpreter *interpreter, const struct ft_score *score,
                        const int *roots, int count);
void ft_interpreter_close(struct ft_interpreter *interpreter);

/* Computes all; then ft_interpreter_value is a root's value. */
void ft_interpret(struct ft_interpreter *interpreter, const struct ft_score_inputs *inputs);

/* A value that a node is given, in place of the one that its operands make. */
struct ft_forced {
  int node;
  double value;
};
/* ft_interpret with some nodes' values given, sorted by node. */
void ft_interpret_forced(struct ft_interpreter *interpreter, const struct ft_score_inputs *inputs,
                         const struct ft_forced *forced, int count);

static inline double ft_interpreter_value(const struct ft_interpreter *interpreter, int node) {
  return interpreter->values[node];
}

/* Where a read of a tensor finds its element, in elements; the indices are those of the last
 * ft_interpret. */
int64_t ft_interpreter_offset(const struct ft_interpreter *interpreter,
                              const struct ft_score_inputs *inputs, int read);

/* The extent of a tensor: a node of sizes and scalars. No memory is asked for. */
double ft_score_size(const struct ft_expression *expression, int node,
                     const struct ft_score_inputs *inputs);

#endif
