/* rounding.h: what the value of an expression errs by where it is computed in fp32.
 * in -> out: an interpreter that has its values -> a bound of the first order. */
#ifndef GENERATOR_SCORE_ROUNDING_H
#define GENERATOR_SCORE_ROUNDING_H

#include "generator/score/interpret.h"

/* The bound of the node's value, where s errs by of_s; positions, scalars and elements of tensors
 * are as given. Where an operation jumps (floor, a comparison) its operands' errors are not
 * followed: ties.h. errors has a place for each node of the expression and is written over. */
double ft_score_rounding(const struct ft_interpreter *interpreter, double of_s, double *errors,
                         int node);

#endif
