/* rates.h: what a multiprocessor does per cycle, for the models of all families.
 * in -> out: arch, request -> rates, microseconds. */
#ifndef TUNER_RATES_H
#define TUNER_RATES_H

#include "generator/arch.h"
#include "generator/request.h"
#include "generator/score/cost.h"

enum {
  FT_EXP_PER_CLK = 16,  /* ex2 per cycle: CUDA programming guide, table of throughputs */
  FT_ISSUE_PER_CLK = 4, /* one instruction per quarter of the multiprocessor */
  FT_SMEM_BYTES_PER_CLK = 128
};

/* The value, or `otherwise` where the GPU's row lacks the figure. */
double ft_or_default(double value, double otherwise);
double ft_cycles_per_us(const struct ft_arch *arch);
double ft_dram_bytes_per_us(const struct ft_arch *arch);

/* Microseconds to read Q, K, V and to write O, LSE once. */
double ft_compulsory_us(const struct ft_request *request, const struct ft_arch *arch);

/* Instructions of mma.sync and for its operands, of a product of 16 x 16 by 16 x 8: of fp32 six
 * mma.sync, and each operand is divided into two numbers of TF32. */
double ft_fragment_instructions(enum ft_dtype dtype);

/* What an element costs a kernel that makes `of` it, with what hides keys; under a block mask few
 * elements are asked whether they are seen. */
struct ft_score_cost ft_cost_with_visible(const struct ft_request *request,
                                          const struct ft_score_costs *score,
                                          struct ft_score_cost of);

/* Cycles for which a multiprocessor waits for what so many elements read of captured tensors. */
double ft_read_cycles(double elements, double reads);

#endif
