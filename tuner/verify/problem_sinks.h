/* problem_sinks.h: the sinks of a problem, and their gradient.
 * in -> out: request + seed -> values on the host and on the GPU; after a backward -> verdict. */
#ifndef TUNER_PROBLEM_SINKS_H
#define TUNER_PROBLEM_SINKS_H

#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/host_problem.h"

struct ft_problem_sinks {
  int count;   /* query heads; 0: the request has no sinks */
  float *host; /* owned, as what follows */
  cu_address memory, gradient;
  float *values; /* of the gradient, as the last run that was verified left them */
};

/* The session's context is current. Sinks are from -2 to 10, the third one is -inf. */
int ft_problem_sinks_make(struct ft_problem_sinks *sinks, fatune_session *session,
                          const struct ft_request *request, uint64_t seed);
/* Makes the gradient NaN. */
int ft_problem_sinks_poison(struct ft_problem_sinks *sinks, fatune_session *session,
                            cu_stream stream);
/* After a run: *comparison becomes worse where the gradient is. */
int ft_problem_sinks_verify(struct ft_problem_sinks *sinks, fatune_session *session,
                            const struct ft_host_problem *problem,
                            struct ft_comparison *comparison);
/* After another run: the bits must be the same. */
int ft_problem_sinks_repeat(struct ft_problem_sinks *sinks, fatune_session *session,
                            struct ft_comparison *comparison);
void ft_problem_sinks_free(struct ft_problem_sinks *sinks, fatune_session *session);

#endif
