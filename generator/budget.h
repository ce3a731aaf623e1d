/* budget.h: what follows from (request, config): shared memory by buffer, registers by fragment,
 * threads. Pure functions; nothing here is ever stored as a choice.
 * in -> out: request + config -> struct ft_budget. */
#ifndef GENERATOR_BUDGET_H
#define GENERATOR_BUDGET_H

#include "generator/arch.h"
#include "generator/config.h"
#include "generator/request.h"

/* Lengths of shared memory are in bytes, registers are 32-bit and per thread. */
struct ft_budget {
  int threads;   /* of a block */
  int warp_rows; /* query rows of one warp: mma block_m / warps, wgmma 16 */
  int d_pad;     /* head dim of Q, K as the products take it: next multiple of 16 */
  int dv_pad;    /* head dim of V, O: likewise, but in wgmma kernels as it is */
  int qk_stride; /* bytes from row to row of Q, K in shared memory: whole 128 bytes, swizzled, or an
                    odd number of 16-byte chunks: ldmatrix's eight rows fall into distinct banks */
  int v_stride;  /* likewise of V and of the staged O */
  int smem_q;    /* mma: Q shares the space of K, V when it moves on to registers */
  int smem_k;    /* all stages */
  int smem_v;
  int smem_o;     /* the staged O tile; it reuses the space of Q (mma: of Q, K, V) */
  int smem_bytes; /* dynamic shared memory of a block */
  int regs_q;     /* by fragment */
  int regs_s;
  int regs_p;
  int regs_o;
  int regs_estimate; /* their sum as live at the peak, with addresses and statistics */
  int regs_limit;    /* mma: what the launch bounds allow, at most 255; wgmma: consumer_regs */

  /* wgmma only. Tiles lie as panels of 64 columns, whose rows are 128 bytes, swizzled. */
  int d_panels;      /* of Q, K */
  int dv_panels;     /* of V, O */
  int consumers;     /* warpgroups that compute, 64 query rows each; one more is the producer */
  int smem_barriers; /* before Q, and whole 1024 bytes, by which panels are aligned */
  int producer_regs; /* what the warpgroups make of launch_regs, by setmaxnreg */
  int consumer_regs;
  int launch_regs;   /* with which every thread begins */
  int skipped_steps; /* most steps of a tile that causal lets a warpgroup skip: all that it does of
                        them is to give their stages back */

  /* mma_backward only. smem_q holds all stages of Q, smem_o those of dO, smem_k and smem_v one
   * tile; regs_s scores, regs_q rows of K or V, regs_o the sums for dK or dV. */
  int key_warps;    /* warps along the keys, of each role */
  int warp_keys;    /* keys of one warp */
  int part_queries; /* queries of which a warp holds scores at a time */
  int p_stride;     /* bytes from key to key of P and dS */
  int smem_p;       /* behind them; wgmma: of all consumers behind V, 0 if P stays in registers */
  int smem_ds;      /* all of its tiles */
  int smem_stats;   /* LSE and D of all stages */
  int dq_warp_rows; /* query rows of dQ that one warp computes */
  int regs_dq;      /* its sums */
  int dq_sums; /* fp32 sums of a tile of queries: 0 with dq_mode=2; 2 where blocks that add in order
                  walk round all tiles, for what each adds before and behind the last tile */
  int dq_threads; /* of a block of the last kernel, which makes dQ of sums, or of Q, K, V, dO */
  int dq_block_n; /* dq_mode=2: keys of a step there */
  int dq_smem;    /* its shared memory */
};

/* Query heads of one kv head whose rows share tiles, query by query: with pack_gqa the largest
 * power of two that divides the group (so that the 64 rows of a warpgroup hold whole queries of
 * them), at most 64 and as many as keep rows within 32 bits; else 1. A run may have another group
 * than the request its config was chosen for: it packs what it can. */
int ft_packed_heads(const struct ft_config *config, int group, int64_t seqlen_q);

struct ft_budget ft_budget_of(const struct ft_request *request, const struct ft_config *config,
                              const struct ft_arch *arch);

/* Blocks that fit on one multiprocessor at once with `registers` per thread (from the compiled
 * kernel, or ft_budget_registers). 0: does not fit. */
int ft_budget_occupancy(const struct ft_budget *budget, const struct ft_arch *arch, int registers);

/* Registers to expect of the compiled kernel. */
int ft_budget_registers(const struct ft_budget *budget);

/* Of a knob or of what follows from some: for budget.c and rules.c. */
static inline bool is_within(int value, int least, int most) {
  return value >= least && value <= most;
}

#endif
