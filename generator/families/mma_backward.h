/* mma_backward.h: the gradients by mma.sync: sm_75 and later.
 * in -> out: its knobs and its budget as lists -> typed views. */
#ifndef GENERATOR_FAMILIES_MMA_BACKWARD_H
#define GENERATOR_FAMILIES_MMA_BACKWARD_H

#include "generator/family.h"

/* The values of dq_mode. */
enum ft_dq_mode { FT_DQ_ATOMIC, FT_DQ_ORDERED, FT_DQ_SECOND_PASS };

#define FT_MMA_BACKWARD_KNOBS(KNOB)                                                                \
  KNOB(block_m, (64, 128, 32, 16), 1, 512, "B_r: query rows of a step")                            \
  KNOB(block_n, (128, 64, 256, 32, 16), 1, 512, "B_c: keys of a block")                            \
  KNOB(warps, (8, 4, 2, 16), 1, 32, "warps of a block")                                            \
  KNOB(stages, (2, 1), 1, 2, "Q/dO tiles in flight in shared memory")                              \
  KNOB(column_warps, (1, 2), 1, 4,                                                                 \
       "warps that share keys, each with a part of dK's or dV's columns")                          \
  KNOB(query_parts, (1, 2), 1, 4,                                                                  \
       "parts of a step's queries, whose scores are in registers in turn")                         \
  KNOB(kv_in_regs, (0, 1), 0, 1, "1: a warp keeps its rows of K or V in registers")                \
  KNOB(deferred_dq, (0, 1), 0, 1,                                                                  \
       "1: dQ of a step is computed beside the products of the next one")                          \
  KNOB(dq_mode, (0, 1, 2), 0, 2,                                                                   \
       "dQ is summed 0: by atomic adds, 1: by adds in a fixed order, 2: in a pass of its own")     \
  KNOB(ctas_per_sm, (1, 2), 1, 32, "blocks per multiprocessor the register allocation aims at")

#define FT_MMA_BACKWARD_BUDGET(TEMPLATE, HOST)                                                     \
  TEMPLATE(d_pad, "head dim of Q, K as the products take it: the next multiple of 16")             \
  TEMPLATE(dv_pad, "head dim of V, dO, likewise")                                                  \
  TEMPLATE(qk_stride, "bytes from row to row of Q, K in shared memory")                            \
  TEMPLATE(v_stride, "likewise of V and dO")                                                       \
  TEMPLATE(p_stride, "bytes from key to key of P and dS")                                          \
  TEMPLATE(smem_k_offset, "the K tile, and dK staged in its place")                                \
  TEMPLATE(smem_v_offset, "the V tile, and dV staged in its place")                                \
  TEMPLATE(smem_q_offset, "Q stages")                                                              \
  TEMPLATE(smem_do_offset, "dO stages")                                                            \
  TEMPLATE(smem_p_offset, "P")                                                                     \
  TEMPLATE(smem_ds_offset, "dS, with deferred_dq of two steps")                                    \
  TEMPLATE(smem_stats_offset, "LSE and delta of all stages")                                       \
  TEMPLATE(dq_warp_rows, "query rows of dQ that one warp computes")                                \
  TEMPLATE(                                                                                        \
      dq_sums,                                                                                     \
      "fp32 sums of a tile of queries: 0 with dq_mode=2; 2 where blocks that add in order walk "   \
      "round all tiles, for what each adds before and behind the last tile")                       \
  TEMPLATE(dq_threads, "of a block of the last kernel, which makes dQ of sums, or of Q, K, V, dO") \
  HOST(dq_smem, "its shared memory")                                                               \
  TEMPLATE(dq_block_n, "dq_mode=2: keys of a step there")                                          \
  TEMPLATE(dq_smem_do_offset, "dq_mode=2: dO there; Q is at 0")                                    \
  TEMPLATE(dq_smem_k_offset, "dq_mode=2: K there")                                                 \
  TEMPLATE(dq_smem_v_offset, "dq_mode=2: V there")                                                 \
  HOST(q_bytes, "of one Q stage")                                                                  \
  HOST(do_bytes, "of one dO stage")                                                                \
  HOST(k_bytes, "of the K tile")                                                                   \
  HOST(v_bytes, "of the V tile")                                                                   \
  HOST(p_bytes, "of P, or of dS of one step")                                                      \
  HOST(key_warps, "warps along the keys, of each role")                                            \
  HOST(warp_keys, "keys of one warp")                                                              \
  HOST(part_queries, "queries of which a warp holds scores at a time")                             \
  HOST(regs_kv, "registers for rows of K or V")                                                    \
  HOST(regs_s, "registers for scores")                                                             \
  HOST(regs_p, "registers for P or dS")                                                            \
  HOST(regs_sums, "registers for the sums of dK or dV")                                            \
  HOST(regs_dq, "registers for the sums of dQ")

FT_DECLARE_FAMILY(mma_backward, FT_MMA_BACKWARD_KNOBS, FT_MMA_BACKWARD_BUDGET);

#endif
