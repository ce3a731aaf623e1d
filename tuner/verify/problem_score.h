/* problem_score.h: what the score function of a problem captures.
 * in -> out: score + sizes + seed -> values on the host and on the GPU. */
#ifndef TUNER_PROBLEM_SCORE_H
#define TUNER_PROBLEM_SCORE_H

#include "generator/request.h"
#include "generator/score/interpret.h"
#include "generator/score/registry.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "tuner/verify/captured_answers.h"

struct ft_problem_score {
  const struct ft_known_score *known; /* NULL: the request has none */
  struct ft_score_inputs inputs;      /* of the reference */
  void *host[FT_SCORE_TENSORS];       /* owned */
  cu_address memory[FT_SCORE_TENSORS];
  fatune_captured captured[FT_SCORE_TENSORS + FT_SCORE_SCALARS];
  int count;

  /* Of what the request wants gradients of, by the bit of its score_gradients. */
  int64_t gradient_counts[FT_GRADIENTS_MOST]; /* elements; 0: none is wanted */
  cu_address gradients[FT_GRADIENTS_MOST];
  float *values[FT_GRADIENTS_MOST];    /* as the last run that was verified left them; owned */
  struct ft_captured_answers *answers; /* made when first needed */
};

/* The session's context is current. Floats are from -1 to 1, integers from 0 to 3, scalars 2.5 and
 * 4. */
int ft_problem_score_make(struct ft_problem_score *score, fatune_session *session,
                          const struct ft_request *request, uint64_t seed);
/* Makes all gradients NaN. */
int ft_problem_score_poison(struct ft_problem_score *score, fatune_session *session,
                            cu_stream stream);

/* After a run: *comparison becomes worse where a gradient is. Problems of more than 2^24 pairs of a
 * query and a key are not looked at: the reference would take minutes. */
int ft_problem_score_verify(struct ft_problem_score *score, fatune_session *session,
                            const struct ft_host_problem *problem,
                            struct ft_comparison *comparison);
/* After another run: the bits must be the same. */
int ft_problem_score_repeat(struct ft_problem_score *score, fatune_session *session,
                            struct ft_comparison *comparison);

void ft_problem_score_free(struct ft_problem_score *score, fatune_session *session);

#endif
