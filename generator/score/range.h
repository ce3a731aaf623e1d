/* range.h: between which values an integer of an expression lies.
 * in -> out: node -> least and most; kernels divide what is never negative without looking. */
#ifndef GENERATOR_SCORE_RANGE_H
#define GENERATOR_SCORE_RANGE_H

#include "generator/score/expression.h"

/* Of a node whose operands have theirs. A read's range is in the node already: what its tensor may
 * hold. Where the result may be beyond 32 bits, and for floats: all that 32 bits hold. */
void ft_range_of(const struct ft_expression *expression, const struct ft_node *node, double *least,
                 double *most);

#endif
