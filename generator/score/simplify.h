/* simplify.h: expressions as small as they can be had without a change of their values.
 * in -> out: operation, operands -> number of the node that has the value.
 *
 * A rule may change the sign of a zero and nothing else: x * 0.0 stays, since x may be infinite. */
#ifndef GENERATOR_SCORE_SIMPLIFY_H
#define GENERATOR_SCORE_SIMPLIFY_H

#include "generator/score/expression.h"

/* The operands have the types that the operation takes; where one is a float and another an
 * integer, the integer becomes a float. Those that the operation does not have are not looked at.
 */
int ft_simplified(struct ft_expression *expression, enum ft_operation operation,
                  const int operands[FT_OPERANDS_MOST]);

/* By number of operands. */
int ft_unary(struct ft_expression *expression, enum ft_operation operation, int a);
int ft_binary(struct ft_expression *expression, enum ft_operation operation, int a, int b);
int ft_where(struct ft_expression *expression, int condition, int a, int b);

/* The node as a float. */
int ft_as_float(struct ft_expression *expression, int node);

#endif
