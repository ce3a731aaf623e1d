/* budget.h: what follows from (request, config): shared memory by buffer, registers by fragment,
 * threads. Pure functions; nothing here is ever stored as a choice.
 * in -> out: request + config -> struct ft_budget. */
#ifndef GENERATOR_BUDGET_H
#define GENERATOR_BUDGET_H

#include "generator/arch.h"
#include "generator/config.h"
#include "generator/request.h"

struct ft_budget {
  int threads;   /* of a block */
  int warp_rows; /* query rows of one warp: block_m / warps */
  int d_pad;     /* head dim of Q, K in shared memory: next multiple of 16 */
  int dv_pad;    /* head dim of V, O in shared memory */
  int qk_stride; /* bytes from row to row of Q, K in shared memory: whole 128 bytes, swizzled, or an
                    odd number of 16-byte chunks: ldmatrix's eight rows fall into distinct banks */
  int v_stride;  /* likewise of V and of the staged O */
  int smem_q;    /* bytes; Q shares the space of K, V when it moves on to registers */
  int smem_k;    /* bytes, all stages */
  int smem_v;
  int smem_o;     /* bytes of the staged O tile; it reuses the space of Q, K, V */
  int smem_bytes; /* dynamic shared memory of a block */
  int regs_q;     /* 32-bit registers per thread, by fragment */
  int regs_s;
  int regs_p;
  int regs_o;
  int regs_estimate; /* their sum as live at the peak, with addresses and statistics */
  int regs_limit;    /* what the launch bounds allow a thread, at most 255 */
};

struct ft_budget ft_budget_of(const struct ft_request *request, const struct ft_config *config,
                              const struct ft_arch *arch);

/* Blocks that fit on one multiprocessor at once with `registers` per thread (from the compiled
 * kernel, or regs_estimate). 0: does not fit. */
int ft_budget_occupancy(const struct ft_budget *budget, const struct ft_arch *arch, int registers);

#endif
