/* problem.h: one attention problem on the GPU, made for checking: seeded random inputs, outputs
 * poisoned and fenced by canaries.
 * in -> out: request + layout + seed -> device buffers, fatune_arguments; after a run -> verdict.
 */
#ifndef TUNER_PROBLEM_H
#define TUNER_PROBLEM_H

#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "tuner/verify/problem_options.h"

struct ft_problem;

/* Makes a problem. The O and LSE that a backward is given come from float64, rounded. Where that
 * takes the CPU too long, or nothing will be verified, they come from this session's own forward.
 * The backward is verified as a function of them. */
int ft_problem_make(struct ft_problem **problem, fatune_session *session,
                    const struct ft_problem_options *options);
void ft_problem_free(struct ft_problem *problem);

/* The arguments of a run on this problem; they live as long as the problem. */
const fatune_arguments *ft_problem_arguments(const struct ft_problem *problem);
double
ft_problem_mask_density(const struct ft_problem *problem); /* of the mask as made; 1 without mask */

/* Makes a workspace of so many bytes for the arguments; 0: none. It is to be poisoned before use.
 */
int ft_problem_reserve(struct ft_problem *problem, size_t bytes);

/* Fills outputs and workspace with NaN patterns and renews the canaries around them. */
int ft_problem_poison(struct ft_problem *problem, cu_stream stream);

/* Makes the workspace that the plan wants for the problem. */
int ft_problem_fit(struct ft_problem *problem, const fatune_plan *plan);

#endif
