/* host_problem.h: one attention problem on the host, of which references are computed; its rows. */
#ifndef TUNER_HOST_PROBLEM_H
#define TUNER_HOST_PROBLEM_H

#include <stdint.h>

#include "generator/request.h"
#include "generator/score/interpret.h"
#include "generator/score/registry.h"
#include "tuner/verify/sequences.h"

enum { FT_DESCALE_Q, FT_DESCALE_K, FT_DESCALE_V, FT_DESCALED }; /* tensors that have factors */

/* One problem on the host. Tensors are dense [batch, seq, head, dim] in the dtype of O, which
 * holds every number of e4m3 exactly. blocks is the mask bitmap [mask_batch,
 * mask_heads, rows, cols] or NULL. */
struct ft_host_problem {
  struct ft_request request; /* all lengths, batch, heads filled in */
  const void *q, *k, *v;
  const uint8_t *blocks;
  int mask_batch, mask_heads;
  /* For a backward: what the forward gave, and the gradient that comes in: [batch, seq, heads_q,
   * head_dim_v] and [batch, heads_q, seq]. dlse may be NULL. */
  const void *o, *dout;
  const float *lse, *dlse;
  /* The request's score function, or NULL, and what it captures. */
  const struct ft_known_score *score;
  struct ft_score_inputs score_inputs;
  const float *sinks; /* [heads_q], or NULL */
  const float
      *descales[FT_DESCALED]; /* [batch, heads, blocks] of Q, or of K and V; NULL: all are 1 */
  /* Sequences of different lengths; NULL: all batch entries are alike. The request's lengths are
   * then those of the longest, and tensors have so many rows of each. */
  const struct ft_sequences *sequences;
  double scale;
  double dropout; /* probability asked for */
  uint64_t seed, offset;
};

struct ft_row {
  int64_t batch;
  int head; /* query head */
  int64_t i;
};

#endif
