/* problem_tell.h: where the gradients of a backward are wrong, in words. */
#ifndef TUNER_PROBLEM_TELL_H
#define TUNER_PROBLEM_TELL_H

#include "generator/text.h"
#include "tuner/verify/problem_parts.h"

/* What ft_problem_explain does for a backward; it needs no run. */
int ft_problem_tell_gradients(struct ft_problem *problem, struct ft_text *text);

#endif
