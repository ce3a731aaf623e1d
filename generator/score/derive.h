/* derive.h: a score function differentiated.
 * in -> out: score, what to differentiate by -> nodes of the derivatives.
 *
 * Comparisons decide and are not differentiated: the derivative is that of the side a value is on,
 * and `visible` has none. What depends on an input through floor has no derivative by it. */
#ifndef GENERATOR_SCORE_DERIVE_H
#define GENERATOR_SCORE_DERIVE_H

#include "generator/score/score.h"

enum { FT_DERIVATIVES = 64 };

/* d score / d leaf: the leaf is the symbol s, a scalar, or one read of a tensor. The gradient of a
 * tensor is the sum of its reads' at the elements that they read. */
struct ft_derivative {
  int leaf, node;
};

struct ft_derivatives {
  int by_s;   /* node; the constant 0 where the score does not depend on s */
  int leaf_s; /* the node of s */
  struct ft_derivative others[FT_DERIVATIVES];
  int count;
};

/* By s, and by the captured floats whose bits (ft_source_tensor, ft_source_scalar) are in `wanted`.
 * Adds nodes to the expression. FT_E_ARGUMENT with name and line where there is no derivative. */
int ft_score_derive(struct ft_score *score, uint64_t wanted, struct ft_derivatives *derivatives);

/* Bits of what the other derivatives are by. */
uint64_t ft_derivatives_sources(const struct ft_score *score,
                                const struct ft_derivatives *derivatives);

#endif
