/* mma_forward.h: the forward by mma.sync, ldmatrix and cp.async: sm_75 and later.
 * in -> out: its knobs and its budget as lists -> typed views. */
#ifndef GENERATOR_FAMILIES_MMA_FORWARD_H
#define GENERATOR_FAMILIES_MMA_FORWARD_H

#include "generator/families/packed_heads.h"
#include "generator/family.h"
#include "generator/key_parts.h"

#define FT_MMA_FORWARD_KNOBS(KNOB)                                                                 \
  KNOB(block_m, (64, 128, 192, 256, 16, 32), 1, 512, "B_r: query rows of a block")                 \
  KNOB(block_n, (32, 48, 64, 96, 128, 16), 1, 512, "B_c: keys of a step of the inner loop")        \
  KNOB(warps, (4, 8, 2, 1), 1, 32, "warps of a block")                                             \
  KNOB(stages, (1, 2, 3), 1, 8, "K/V tiles in flight in shared memory")                            \
  KNOB(q_in_regs, (0, 1), 0, 1,                                                                    \
       "1: Q stays in registers; 0: Q is read from shared memory every step")                      \
  KNOB(overlap_qk, (0, 1), 0, 1, "1: S of the next step is issued before the softmax of this one") \
  KNOB(draw_early, (0, 1), 0, 1, "1: dropout's random bits are drawn beside Q K^T; 0: beside P V") \
  KNOB(key_warps, (0, 4, 8), 0, 8,                                                                 \
       "warps that share their rows, each with a part of a step's keys: all of a block; 0: none "  \
       "share")                                                                                    \
  KNOB(                                                                                            \
      two_level, (0), 0, 1,                                                                        \
      "of e4m3: 1: the short sums of P V of 32 keys are added to fp32 ones; 0: those of all keys") \
  FT_PACK_GQA_KNOB(KNOB)                                                                           \
  FT_SPLIT_KEYS_KNOB(KNOB)                                                                         \
  KNOB(ctas_per_sm, (1, 2, 3, 4), 1, 32,                                                           \
       "blocks per multiprocessor the register allocation aims at")

#define FT_MMA_FORWARD_BUDGET(TEMPLATE, HOST)                                                      \
  TEMPLATE(d_pad, "head dim of Q, K as the products take it: a multiple of 16, of e4m3 of 32")     \
  TEMPLATE(dv_pad, "head dim of V, O, a multiple of 16")                                           \
  TEMPLATE(q_stride, "bytes from row to row of Q in shared memory")                                \
  TEMPLATE(k_stride, "likewise of K")                                                              \
  TEMPLATE(v_stride, "likewise of V")                                                              \
  TEMPLATE(o_stride, "likewise of the staged O")                                                   \
  TEMPLATE(smem_k_offset, "K tiles; where Q was, when it has moved on to registers")               \
  TEMPLATE(smem_v_offset, "V tiles")                                                               \
  TEMPLATE(smem_part_offset, "O and LSE of a part of a cluster, behind those of its warps")        \
  HOST(q_bytes, "of the Q tile")                                                                   \
  HOST(k_bytes, "of one K tile")                                                                   \
  HOST(v_bytes, "of one V tile")                                                                   \
  HOST(o_bytes, "of the staged O tile, which reuses the space of Q, K and V")                      \
  HOST(o_columns, "head dim of V, O as it is")                                                     \
  HOST(warp_rows, "query rows of a warp")                                                          \
  HOST(regs_q, "registers for Q")                                                                  \
  HOST(regs_s, "registers for S")                                                                  \
  HOST(regs_p, "registers for P")                                                                  \
  HOST(regs_o, "registers for O")

FT_DECLARE_FAMILY(mma_forward, FT_MMA_FORWARD_KNOBS, FT_MMA_FORWARD_BUDGET);

/* For requests with few query rows and few work tiles. *config: all warps of a block share their
 * rows, and the blocks of a cluster divide up the keys of a tile; or, beside wgmma, whole walks of
 * narrow heads in pages. *us: estimated. false: no such config is legal, or one without clusters is
 * expected to take less time. */
bool ft_mma_forward_of_few_rows(const struct ft_request *request, const struct ft_arch *arch,
                                struct ft_config *config, double *us);

/* Best first: few rows, then what was fastest most often. false: no config is legal. */
bool ft_mma_forward_default(const struct ft_request *request, const struct ft_arch *arch,
                            struct ft_config *config);

/* Bytes of a row of K or V that a load asks for at once, the fewer of both. */
int ft_mma_forward_piece(const struct ft_request *request, const struct ft_budget *budget);

/* Fills in what the family says of walks. */
void ft_mma_forward_walks(struct ft_walks *walks, const struct ft_request *request,
                          const struct ft_config *config, const struct ft_budget *budget,
                          const struct ft_arch *arch);

/* What a run of a request with lengths has to do; how many microseconds that is expected to take.
 */
struct ft_walks ft_mma_forward_walks_of(const struct ft_request *request,
                                        const struct ft_config *config, const struct ft_arch *arch);
double ft_mma_forward_estimate(const struct ft_request *request, const struct ft_config *config,
                               const struct ft_arch *arch);

#endif
