/* problem_descales.h: the factors of Q, K and V of a problem in e4m3.
 * in -> out: request + seed -> values on the host and on the GPU, and where they lie. */
#ifndef TUNER_PROBLEM_DESCALES_H
#define TUNER_PROBLEM_DESCALES_H

#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "tuner/verify/host_problem.h"

struct ft_problem_descales {
  float *host[FT_DESCALED]; /* [batch, heads, blocks], owned; NULL: all are 1 */
  cu_address memory;
  fatune_descale given[FT_DESCALED]; /* as a run is given them */
};

/* The session's context is current. Of one seed in four V has none, of one in four K has the same
 * for all heads. */
int ft_problem_descales_make(struct ft_problem_descales *descales, fatune_session *session,
                             const struct ft_request *request, uint64_t seed);
void ft_problem_descales_free(struct ft_problem_descales *descales, fatune_session *session);

#endif
