/* lower.h: expressions as kernels had better compute them.
 * in -> out: node -> node of the same value but for rounding: what is divided by a value that many
 * elements share is multiplied by its inverse, which is computed once. */
#ifndef GENERATOR_SCORE_LOWER_H
#define GENERATOR_SCORE_LOWER_H

#include "generator/score/expression.h"

/* How often a kernel computes a value: once for a head of a batch entry, a query, a key, or for
 * each query and key. As bits: what a query and a key have part in is of both. */
enum ft_level { FT_LEVEL_HEAD, FT_LEVEL_ROW, FT_LEVEL_COLUMN, FT_LEVEL_ELEMENT, FT_LEVELS };

enum ft_level ft_level_of(const struct ft_node *node);

/* Replaces each of the roots. */
int ft_score_lower(struct ft_expression *expression, int *roots, int count);

#endif
