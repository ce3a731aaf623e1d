/* gradient_answers.h: what chosen rows of dQ, dK, dV must be, how far off a kernel may be, and the
 * verdict.
 * in -> out: host problem -> float64, allowances; a kernel's rows -> struct ft_comparison. */
#ifndef TUNER_GRADIENT_ANSWERS_H
#define TUNER_GRADIENT_ANSWERS_H

#include "tuner/verify/comparison.h"
#include "tuner/verify/gradients.h"

/* What chosen rows must be: of each gradient the first, the last and random ones, `rows` of them or
 * all. */
struct ft_gradient_answers;
int ft_gradient_answers_make(struct ft_gradient_answers **answers,
                             const struct ft_host_problem *problem, int rows, uint64_t seed,
                             int threads);
void ft_gradient_answers_free(struct ft_gradient_answers *answers);

/* The chosen rows of a gradient. */
int ft_gradient_answers_rows(const struct ft_gradient_answers *answers, enum ft_gradient gradient,
                             const struct ft_row **rows);

/* Error over allowance of one row of dtype patterns; > 1: wrong. *column: the worst column,
 * *should: what it should be. */
double ft_gradient_answers_row(const struct ft_gradient_answers *answers, enum ft_gradient gradient,
                               int index, const void *values, int *column, double *should);

/* Marks the columns of one row that are wrong; leaves the others as they are. */
void ft_gradient_answers_columns(const struct ft_gradient_answers *answers,
                                 enum ft_gradient gradient, int index, const void *values,
                                 bool *columns);

/* values: of each gradient the chosen rows, one after the other. */
void ft_gradient_answers_compare(const struct ft_gradient_answers *answers,
                                 void *const values[FT_GRADIENTS],
                                 struct ft_comparison *comparison);

#endif
