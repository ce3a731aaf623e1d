/* wgmma_backward_roles.h: the gradients of wide heads by wgmma: clusters of two blocks that
 * exchange dS, whose warpgroups share the products of a step. sm_90a.
 * in -> out: its knobs and its budget as lists -> typed views. */
#ifndef GENERATOR_FAMILIES_WGMMA_BACKWARD_ROLES_H
#define GENERATOR_FAMILIES_WGMMA_BACKWARD_ROLES_H

#include "generator/family.h"

#define FT_WGMMA_BACKWARD_ROLES_KNOBS(KNOB)                                                        \
  KNOB(block_m, (64), 1, 512, "B_r: query rows of a step")                                         \
  KNOB(block_n, (128), 1, 512, "B_c: keys of a cluster, half of them for each block")              \
  KNOB(q_stages, (2, 1, 3), 1, 8, "Q tiles in shared memory")                                      \
  KNOB(do_stages, (1, 2, 3), 1, 8, "dO tiles in shared memory")                                    \
  KNOB(ds_stages, (1, 2), 1, 8, "tiles of P and dS in shared memory, and as many of the other dS") \
  KNOB(dq_stages, (2, 1), 1, 2, "pieces of dQ in shared memory, of 64 columns")                    \
  KNOB(early_dq, (0, 1), 0, 1,                                                                     \
       "1: the last kernel begins with L2 sections that are done; 0: when the main one has ended") \
  KNOB(multicast, (0, 1), 0, 1, "1: Q and dO come once for both blocks; 0: once for each")         \
  KNOB(heads_inner, (0, 1), 0, 1,                                                                  \
       "1: a walk takes all heads of a group at a query tile, down and up in turn; 0: head by "    \
       "head")

/* Tiles lie as panels of 64 columns, whose rows are 128 bytes, swizzled. */
#define FT_WGMMA_BACKWARD_ROLES_BUDGET(TEMPLATE, HOST)                                             \
  TEMPLATE(d_pad, "head dim of Q, K as the products take it: the next multiple of 16")             \
  TEMPLATE(dv_pad, "head dim of V, dO, likewise")                                                  \
  TEMPLATE(d_panels, "panels of Q, K")                                                             \
  TEMPLATE(dv_panels, "panels of V, dO")                                                           \
  TEMPLATE(first_columns, "columns of dQ that the first block makes, the other one the rest")      \
  TEMPLATE(kv_in_regs,                                                                             \
           "1: rows of K and V fit the registers of the warpgroups that multiply them")            \
  TEMPLATE(other_k_panels, "panels of the other block's K that one of them needs for its columns") \
  TEMPLATE(                                                                                        \
      keys_apart,                                                                                  \
      "1: in the place of V, once in registers, a block has its columns of K from a panel on")     \
  TEMPLATE(qk_stride, "bytes from row to row of dQ, as the last kernel stages it")                 \
  TEMPLATE(smem_lse_offset, "LSE of the Q stages, behind the barriers")                            \
  TEMPLATE(smem_delta_offset, "delta of the dO stages")                                            \
  TEMPLATE(smem_k_offset, "the K tile, and dK staged in its place")                                \
  TEMPLATE(smem_v_offset, "the V tile, and dV staged in its place")                                \
  TEMPLATE(smem_other_k_offset, "columns of the other block's K tile")                             \
  TEMPLATE(smem_q_offset, "Q stages")                                                              \
  TEMPLATE(smem_do_offset, "dO stages")                                                            \
  TEMPLATE(smem_ds_offset, "stages of P, then dS")                                                 \
  TEMPLATE(smem_other_ds_offset, "stages of the other block's dS")                                 \
  TEMPLATE(smem_dq_offset, "pieces of dQ, in fp32, from where they are added to their sum")        \
  TEMPLATE(loader_regs, "registers of a thread of the loading warpgroup, by setmaxnreg")           \
  TEMPLATE(values_regs, "of one that makes P and dV, likewise")                                    \
  TEMPLATE(keys_regs, "of one that makes dS and dK, likewise")                                     \
  TEMPLATE(queries_regs, "of one that makes dQ, likewise")                                         \
  TEMPLATE(dq_sums, "fp32 sums of a tile of queries")                                              \
  TEMPLATE(prepare_threads, "of a block of the first kernel")                                      \
  TEMPLATE(dq_threads, "of a block of the last kernel, which makes dQ of sums")                    \
  HOST(dq_smem, "its shared memory")                                                               \
  HOST(q_bytes, "of one Q stage")                                                                  \
  HOST(do_bytes, "of one dO stage")                                                                \
  HOST(k_bytes, "of the K tile")                                                                   \
  HOST(v_bytes, "of the V tile")                                                                   \
  HOST(ds_bytes, "of one stage of dS")                                                             \
  HOST(regs_kv, "registers for rows of K or V")                                                    \
  HOST(regs_s, "registers for scores, with LSE")                                                   \
  HOST(regs_sum, "registers for the wider of dK and dV")

FT_DECLARE_FAMILY(wgmma_backward_roles, FT_WGMMA_BACKWARD_ROLES_KNOBS,
                  FT_WGMMA_BACKWARD_ROLES_BUDGET);

#endif
