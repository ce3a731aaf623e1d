/* rates.h: what a multiprocessor does per cycle, for the models of all families.
 * in -> out: arch, request -> rates, microseconds. */
#ifndef GENERATOR_RATES_H
#define GENERATOR_RATES_H

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

/* Microseconds in which Q comes to all blocks and O goes. */
double ft_rows_us(const struct ft_request *request, const struct ft_arch *arch);

/* How K and V come to the blocks of a launch. */
struct ft_loads {
  double bytes;  /* of a step */
  double steps;  /* of all blocks */
  double busy;   /* multiprocessors that have blocks */
  double beside; /* bytes a cycle of a multiprocessor, of what L2 holds */
  int piece;     /* bytes of a row that a load asks for at once; 0: any */
};

/* Cycles that one step's K and V take, from being asked for to being there, and the part of them in
 * which a multiprocessor receives nothing else. Of all that blocks read, as much comes from DRAM as
 * K and V have bytes; L2 has the rest. */
struct ft_load {
  double waited, received;
};
struct ft_load ft_load_of(const struct ft_request *request, const struct ft_arch *arch,
                          const struct ft_loads *loads);

/* Clusters of so many blocks that are resident at once. All blocks of a cluster are in one GPC,
 * which leaves some multiprocessors idle. */
double ft_resident_clusters(const struct ft_arch *arch, double blocks, double resident);

/* Instructions of mma.sync and for its operands, of a product of 16 x 16 by 16 x 8, in a warp with
 * so many rows: of fp32 six mma.sync, and each operand is divided into two numbers of TF32. Those
 * of K and V serve all rows of the warp. */
double ft_fragment_instructions(enum ft_dtype dtype, double rows);

/* What an element costs a kernel that makes `of` it, with what hides keys; under a block mask few
 * elements are asked whether they are seen. */
struct ft_score_cost ft_cost_with_visible(const struct ft_request *request,
                                          const struct ft_score_costs *score,
                                          struct ft_score_cost of);

/* Cycles for which a multiprocessor waits for what so many elements read of captured tensors. */
double ft_read_cycles(double elements, double reads);

#endif
