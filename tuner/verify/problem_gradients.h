/* problem_gradients.h: whether a backward left what it should.
 * in -> out: problem after a run -> struct ft_comparison. */
#ifndef TUNER_PROBLEM_GRADIENTS_H
#define TUNER_PROBLEM_GRADIENTS_H

#include "tuner/verify/problem_parts.h"

/* ft_problem_verify of a backward. */
int ft_problem_verify_gradients(struct ft_problem *problem, int rows, int threads,
                                struct ft_comparison *comparison);
void ft_problem_forget_gradients(struct ft_problem *problem);

/* After a verdict and another run: the outputs must be what they were, bit for bit; *comparison
 * becomes wrong where they are not. For requests that are deterministic. */
int ft_problem_verify_repeat(struct ft_problem *problem, struct ft_comparison *comparison);

#endif
