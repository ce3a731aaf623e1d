/* problem_score.h: what the score function of a problem captures.
 * in -> out: score + sizes + seed -> values on the host and on the GPU. */
#ifndef TUNER_PROBLEM_SCORE_H
#define TUNER_PROBLEM_SCORE_H

#include "generator/request.h"
#include "generator/score/interpret.h"
#include "generator/score/registry.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"

struct ft_problem_score {
  const struct ft_known_score *known; /* NULL: the request has none */
  struct ft_score_inputs inputs;      /* of the reference */
  void *host[FT_SCORE_TENSORS];       /* owned */
  cu_address memory[FT_SCORE_TENSORS];
  fatune_captured captured[FT_SCORE_TENSORS + FT_SCORE_SCALARS];
  int count;
};

/* The session's context is current. Floats are from -1 to 1, integers from 0 to 3, scalars 2.5 and
 * 4. */
int ft_problem_score_make(struct ft_problem_score *score, fatune_session *session,
                          const struct ft_request *request, uint64_t seed);
void ft_problem_score_free(struct ft_problem_score *score, fatune_session *session);

#endif
