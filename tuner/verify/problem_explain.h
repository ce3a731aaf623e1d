/* problem_explain.h: what is wrong with a wrong result.
 * in -> out: problem with a verdict + a way to run the kernel again -> where it is off, in words.
 */
#ifndef TUNER_PROBLEM_EXPLAIN_H
#define TUNER_PROBLEM_EXPLAIN_H

#include "generator/text.h"
#include "runtime/fatune.h"
#include "tuner/verify/problem.h"

/* After ft_problem_verify found a result wrong: appends lines on the worst row, each with its
 * newline. Runs the kernel again, at most FT_EXPLAIN_RUNS times, to find out which weights it
 * really used: on the same Q and K, with V replaced by columns of the unit matrix, O holds the
 * weights P[i, j] themselves, head_dim_v keys at a time; they are compared with float64.
 * run: FT_OK when all is done, not only begun; its failure is this function's. Afterwards V is as
 * it was, and the outputs are poisoned. */
enum { FT_EXPLAIN_RUNS = 64 };
int ft_problem_explain(struct ft_problem *problem,
                       int (*run)(void *payload, const fatune_arguments *arguments), void *payload,
                       struct ft_text *text);

#endif
