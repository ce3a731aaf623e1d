/* problem.h: one attention problem on the GPU, made for checking: seeded random inputs, outputs
 * poisoned and fenced by canaries.
 * in -> out: request + layout + seed -> device buffers, fatune_arguments; after a run -> verdict.
 */
#ifndef TUNER_PROBLEM_H
#define TUNER_PROBLEM_H

#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "tuner/verify/reference.h"

enum ft_layout {                   /* order of the dims in memory, outermost first */
                 FT_LAYOUT_BSHD,   /* batch, seq, head, dim */
                 FT_LAYOUT_BHSD,   /* batch, head, seq, dim */
                 FT_LAYOUT_PADDED, /* BSHD with odd gaps between rows, heads and batches, filled
                                      with NaN */
                 FT_LAYOUT_WIDE    /* with other gaps: of dO and the gradients where Q is padded */
};

struct ft_problem_options {
  struct ft_request request; /* filled in; mask_density decides how many blocks are kept */
  enum ft_layout layout;
  uint64_t seed;  /* of inputs, mask, dropout */
  double dropout; /* probability when the request has dropout; 0: 0.1 */
  double scale;   /* 0: 1 / sqrt(head_dim) */
  bool keep_host; /* host copies are kept, so that ft_problem_verify can be called */
  bool want_lse;
  bool want_dlse;      /* of a backward: with an incoming gradient of LSE */
  bool broadcast_mask; /* one mask for all batches and heads */
};

struct ft_problem;

/* Of a backward: O and LSE are those of float64, rounded, or, where that would be too much for the
 * CPU or nothing will be verified, of this session's own forward; the backward is verified as a
 * function of them. */
int ft_problem_make(struct ft_problem **problem, fatune_session *session,
                    const struct ft_problem_options *options);
void ft_problem_free(struct ft_problem *problem);

/* Arguments of a run over this problem; lives as long as the problem. */
const fatune_arguments *ft_problem_arguments(const struct ft_problem *problem);
double ft_problem_mask_density(const struct ft_problem *problem); /* the real one; 1 without mask */

/* Makes the arguments' workspace of so many bytes, to be poisoned before it is used; 0: none. */
int ft_problem_reserve(struct ft_problem *problem, size_t bytes);

/* Fills outputs and workspace with NaN patterns and renews the canaries around them. */
int ft_problem_poison(struct ft_problem *problem, cu_stream stream);

/* After a run: canaries whole, every element written, `rows` random rows (all rows if there are
 * fewer) right. FT_OK also for a wrong result: the verdict is in *comparison. */
int ft_problem_verify(struct ft_problem *problem, int rows, int threads,
                      struct ft_comparison *comparison);

/* After a verdict and another run: the outputs must be what they were, bit for bit; *comparison
 * becomes wrong where they are not. For requests that are deterministic. */
int ft_problem_verify_repeat(struct ft_problem *problem, struct ft_comparison *comparison);

/* Poisons, runs, verifies, and a deterministic backward once more. run: FT_OK when all is done, not
 * only begun; its failure is this function's. */
struct ft_problem_run {
  int (*run)(void *payload, const fatune_arguments *arguments);
  void *payload;
  cu_stream stream; /* it runs on */
};
int ft_problem_check(struct ft_problem *problem, const struct ft_problem_run *run, int rows,
                     int threads, struct ft_comparison *comparison);

/* The workspace that the plan wants for the problem. */
int ft_problem_fit(struct ft_problem *problem, const fatune_plan *plan);

#endif
