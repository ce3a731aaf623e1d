/* problem_gradients.h: whether a backward wrote the gradients that it should.
 * in -> out: problem after a run -> struct ft_comparison. */
#ifndef TUNER_PROBLEM_GRADIENTS_H
#define TUNER_PROBLEM_GRADIENTS_H

#include "tuner/verify/problem_parts.h"

/* What ft_problem_verify does for a backward. */
int ft_problem_verify_gradients(struct ft_problem *problem, int rows, int threads,
                                struct ft_comparison *comparison);
void ft_problem_forget_gradients(struct ft_problem *problem);

/* For deterministic requests, after a verdict and a second run: the outputs must be bit for bit
 * those of the first. If they are not, *comparison says so and is wrong. */
int ft_problem_verify_repeat(struct ft_problem *problem, struct ft_comparison *comparison);

#endif
