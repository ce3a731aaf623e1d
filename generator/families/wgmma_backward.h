/* wgmma_backward.h: the gradients by wgmma, TMA, mbarrier and setmaxnreg: sm_90a.
 * in -> out: its knobs and its budget as lists -> typed views. */
#ifndef GENERATOR_FAMILIES_WGMMA_BACKWARD_H
#define GENERATOR_FAMILIES_WGMMA_BACKWARD_H

#include "generator/family.h"

/* The values of pacing. */
enum ft_pacing { FT_PACING_NONE, FT_PACING_STAGGERED, FT_PACING_IN_TURNS };

/* The values of persistent. */
enum ft_block_tiles { FT_ONE_TILE, FT_PERSISTENT, FT_STREAMED };
enum { FT_STREAMED_NOTES = 8 };

/* The values of dq_adds. */
enum ft_dq_adds { FT_DQ_BY_ITS_WARPS, FT_DQ_FROM_REGISTERS, FT_DQ_BESIDE_THE_LOADER };

#define FT_WGMMA_BACKWARD_KNOBS(KNOB)                                                              \
  KNOB(block_m, (64, 128), 1, 512, "B_r: query rows of a step")                                    \
  KNOB(block_n, (128, 192, 64), 1, 512, "B_c: keys of a block, 64 for each consumer")              \
  KNOB(q_stages, (2, 3, 4), 1, 8, "Q tiles in shared memory")                                      \
  KNOB(do_stages, (2, 3, 4), 1, 8, "dO tiles in shared memory")                                    \
  KNOB(ds_stages, (2, 3), 1, 8, "dS tiles in shared memory")                                       \
  KNOB(loads_beside_dq, (0, 1), 0, 1,                                                              \
       "1: the warpgroup that makes dQ loads, too; 0: one of its own does")                        \
  KNOB(kv_in_regs, (0, 1), 0, 1, "1: a consumer keeps its rows of K and V in registers")           \
  KNOB(early_scores, (0, 1), 0, 1, "1: the next step's S is issued beside dK; 0: after it")        \
  KNOB(direct_store, (0, 1), 0, 1,                                                                 \
       "1: dK and dV go from registers to global memory; 0: through shared memory, by TMA")        \
  KNOB(persistent, (0, 1, 2), 0, 2,                                                                \
       "0: a block has one key tile; it takes one after another 1: each with a loop of its own, "  \
       "2: in one loop over the steps of all, the next K ahead")                                   \
  KNOB(early_dq, (0, 1), 0, 1,                                                                     \
       "1: the last kernel begins with L2 sections that are done; 0: when the main one has ended") \
  KNOB(dq_adds, (0, 1), 0, 2,                                                                      \
       "a step's dQ is added to its sum 0: from shared memory by the warps that made it, 1: from " \
       "registers, 2: from shared memory by a warp beside the loader")                             \
  KNOB(dq_turned, (0), 0, 1, "1: dQ is made transposed, of K^T in registers; 0: as it is")         \
  KNOB(pacing, (0, 1, 2), 0, 2,                                                                    \
       "consumers are kept out of step 1: as they begin, 2: by computing exponentials in turns")   \
  KNOB(part_steps, (0, 32), 0, 1024,                                                               \
       "block masks: walks of more steps are divided up among blocks; 0: none is")                 \
  KNOB(heads_inner, (0, 1), 0, 1,                                                                  \
       "1: a walk takes all heads of a group at a query tile, down and up in turn; 0: head by "    \
       "head")

/* Tiles lie as panels of 64 columns, whose rows are 128 bytes, swizzled. */
#define FT_WGMMA_BACKWARD_BUDGET(TEMPLATE, HOST)                                                   \
  TEMPLATE(d_pad, "head dim of Q, K as the products take it: the next multiple of 16")             \
  TEMPLATE(dv_pad, "head dim of V, dO, likewise")                                                  \
  TEMPLATE(d_panels, "panels of Q, K")                                                             \
  TEMPLATE(dv_panels, "panels of V, dO")                                                           \
  TEMPLATE(qk_stride, "bytes from row to row of dQ, as the last kernel stages it")                 \
  TEMPLATE(smem_lse_offset, "LSE of the Q stages, behind the barriers")                            \
  TEMPLATE(smem_delta_offset, "delta of the dO stages")                                            \
  TEMPLATE(k_stages, "K tiles in shared memory")                                                   \
  TEMPLATE(smem_k_offset, "the K tiles, and dK staged in the place of one")                        \
  TEMPLATE(smem_v_offset, "the V tile, and dV staged in its place")                                \
  TEMPLATE(smem_q_offset, "Q stages")                                                              \
  TEMPLATE(smem_do_offset, "dO stages")                                                            \
  TEMPLATE(smem_ds_offset, "dS stages")                                                            \
  TEMPLATE(smem_dq_offset, "the dQ of a step, in fp32, from where it is added to its sum")         \
  TEMPLATE(smem_kept_offset, "dropout: which elements of some steps are kept")                     \
  TEMPLATE(kept_stages, "those steps: drawn beside the loader; 0: by consumers")                   \
  TEMPLATE(loader_regs, "registers of a thread of the loading warpgroup, by setmaxnreg")           \
  TEMPLATE(dq_regs, "registers of a thread that makes dQ, likewise")                               \
  TEMPLATE(consumer_regs, "registers of a consumer's thread, likewise")                            \
  TEMPLATE(dq_sums, "fp32 sums of a tile of queries")                                              \
  TEMPLATE(dq_stages,                                                                              \
           "dQ tiles in shared memory, each with a warp beside the loader that adds it; else 0")   \
  TEMPLATE(dq_columns, "of dQ that one product makes, where they are more than 64; else 64")       \
  TEMPLATE(prepare_threads, "of a block of the first kernel")                                      \
  TEMPLATE(dq_threads, "of a block of the last kernel, which makes dQ of sums")                    \
  HOST(dq_smem, "its shared memory")                                                               \
  HOST(consumers, "warpgroups that hold dK and dV, of 64 keys each")                               \
  HOST(q_bytes, "of one Q stage")                                                                  \
  HOST(do_bytes, "of one dO stage")                                                                \
  HOST(k_bytes, "of a K tile")                                                                     \
  HOST(v_bytes, "of the V tile")                                                                   \
  HOST(kept_bytes, "dropout drawn beside the loader: of the bits of a step")                       \
  HOST(ds_bytes, "of one dS stage")                                                                \
  HOST(regs_kv, "registers for rows of K and V")                                                   \
  HOST(regs_s, "registers for scores")                                                             \
  HOST(regs_p, "registers for P")                                                                  \
  HOST(regs_sums, "registers for the sums of dK and dV")

FT_DECLARE_FAMILY(wgmma_backward, FT_WGMMA_BACKWARD_KNOBS, FT_WGMMA_BACKWARD_BUDGET);

/* false: no favourite is legal. */
bool ft_wgmma_backward_default(const struct ft_request *request, const struct ft_arch *arch,
                               struct ft_config *config);

#endif
