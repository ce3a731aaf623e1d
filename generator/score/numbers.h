/* numbers.h: what an operation makes of numbers.
 * in -> out: operation, type, values of the operands -> value, in float64. */
#ifndef GENERATOR_SCORE_NUMBERS_H
#define GENERATOR_SCORE_NUMBERS_H

#include "generator/score/expression.h"

/* Bools are 0 and 1. Integers divide towards minus infinity, as in Lua; x // 0 and x % 0 are 0.
 * floor gives the nearest 32-bit integer, of NaN 0. min and max of NaN and anything are NaN. */
double ft_operate(enum ft_operation operation, const double *operands);

#endif
