/* problem_backward.h: what a backward is given: O and LSE of the forward, dO and dLSE. */
#ifndef TUNER_PROBLEM_BACKWARD_H
#define TUNER_PROBLEM_BACKWARD_H

#include "tuner/verify/problem_parts.h"

/* Makes O, LSE and dLSE of a backward; Q, K, V, dO and the mask are there. The context is current.
 */
int ft_problem_forward(struct ft_problem *problem);

#endif
