/* problem_backward.h: what a backward finds: O and LSE of the forward, dO and dLSE. */
#ifndef TUNER_PROBLEM_BACKWARD_H
#define TUNER_PROBLEM_BACKWARD_H

#include "tuner/verify/problem_parts.h"

/* O, LSE, dO, dLSE of a backward; Q, K, V and the mask are there. The context
 * is current. */
int ft_problem_forward(struct ft_problem *problem);

#endif
