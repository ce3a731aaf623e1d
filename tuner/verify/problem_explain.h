/* problem_explain.h: what is wrong with a wrong result.
 * in -> out: problem with a verdict + a way to run the kernel again -> in words, where it is wrong.
 */
#ifndef TUNER_PROBLEM_EXPLAIN_H
#define TUNER_PROBLEM_EXPLAIN_H

#include "generator/text.h"
#include "runtime/fatune.h"
#include "tuner/verify/problem.h"

/* After ft_problem_verify has found a result wrong: appends lines on the worst row, each with its
 * newline. It runs the kernel again, at most FT_EXPLAIN_RUNS times, to find out which weights the
 * kernel really uses: with V replaced by columns of the unit matrix and the same Q and K, O holds
 * the weights P[i, j], head_dim_v keys at a time. They are compared with float64. run returns FT_OK
 * when all is done, not only begun; its failure is this function's. Afterwards V is as it was, and
 * the outputs are poisoned. */
enum { FT_EXPLAIN_RUNS = 64 };
int ft_problem_explain(struct ft_problem *problem,
                       int (*run)(void *payload, const fatune_arguments *arguments), void *payload,
                       struct ft_text *text);

#endif
