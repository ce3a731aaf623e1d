/* problem.h: one attention problem on the GPU, made for checking: seeded random inputs, outputs
 * poisoned and fenced by canaries.
 * in -> out: request + layout + seed -> device buffers, fatune_arguments; after a run -> verdict.
 */
#ifndef TUNER_PROBLEM_H
#define TUNER_PROBLEM_H

#include "runtime/session.h"
#include "tuner/reference.h"

enum ft_layout {                  /* order of the dims in memory, outermost first */
                 FT_LAYOUT_BSHD,  /* batch, seq, head, dim */
                 FT_LAYOUT_BHSD,  /* batch, head, seq, dim */
                 FT_LAYOUT_PADDED /* BSHD with odd gaps between rows, heads and batches, filled with
                                     NaN */
};

struct ft_problem_options {
  struct ft_request request; /* filled in; mask_density decides how many blocks are kept */
  enum ft_layout layout;
  uint64_t seed;  /* of inputs, mask, dropout */
  double dropout; /* probability when the request has dropout; 0: 0.1 */
  double scale;   /* 0: 1 / sqrt(head_dim) */
  bool keep_host; /* host copies are kept, so that ft_problem_verify can be called */
  bool want_lse;
  bool broadcast_mask; /* one mask for all batches and heads */
};

struct ft_problem;

int ft_problem_make(struct ft_problem **problem, fatune_session *session,
                    const struct ft_problem_options *options);
void ft_problem_free(struct ft_problem *problem);

/* Arguments of a run over this problem; lives as long as the problem. */
const fatune_arguments *ft_problem_arguments(const struct ft_problem *problem);
double ft_problem_mask_density(const struct ft_problem *problem); /* the real one; 1 without mask */

/* Fills O and LSE with NaN patterns and renews the canaries around them. */
int ft_problem_poison(struct ft_problem *problem, cu_stream stream);

/* After a run: canaries whole, every element written, `rows` random rows (all rows if there are
 * fewer) right. FT_OK also for a wrong result: the verdict is in *comparison. */
int ft_problem_verify(struct ft_problem *problem, int rows, int threads,
                      struct ft_comparison *comparison);

#endif
