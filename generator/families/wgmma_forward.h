/* wgmma_forward.h: the forward by wgmma, TMA, mbarrier and setmaxnreg: sm_90a.
 * in -> out: its knobs and its budget as lists -> typed views. */
#ifndef GENERATOR_FAMILIES_WGMMA_FORWARD_H
#define GENERATOR_FAMILIES_WGMMA_FORWARD_H

#include "generator/families/packed_heads.h"
#include "generator/family.h"
#include "generator/key_parts.h"

#define FT_WGMMA_FORWARD_KNOBS(KNOB)                                                               \
  KNOB(block_m, (128, 192, 64, 256), 1, 512, "B_r: query rows of a work tile")                     \
  KNOB(block_n, (128, 64, 80, 96, 112, 144, 160, 176, 192), 1, 512,                                \
       "B_c: keys of a step of the inner loop")                                                    \
  KNOB(stages, (2, 3, 4), 1, 8, "K/V tiles in flight in shared memory")                            \
  KNOB(q_stages, (1, 2), 1, 2, "Q tiles in shared memory; with 2 the next tile's Q comes in time") \
  KNOB(overlap_tiles, (0, 1), 0, 1,                                                                \
       "1: the next tile's first Q K^T is issued beside the last P V")                             \
  KNOB(pingpong, (0, 1, 2), 0, 2,                                                                  \
       "warpgroups take turns, 1: to issue products, 2: to compute softmax, the others the other") \
  KNOB(integer_max, (0, 1), 0, 1, "1: maxima of scores are compared as integers, three at a time") \
  KNOB(exp2_poly, (0, 1), 0, 1,                                                                    \
       "1: an eighth of the powers of 2 are polynomials, beside the unit for ex2")                 \
  KNOB(lazy_rescale, (0, 1), 0, 1,                                                                 \
       "1: O is rescaled only when a maximum has moved by more than 2^8")                          \
  KNOB(p_in_smem, (0, 1), 0, 1,                                                                    \
       "1: P goes to P V by way of shared memory; 0: it stays in registers")                       \
  KNOB(score_in_smem, (0, 1, 2), 0, 2,                                                             \
       "1: what a score reads of each query and key comes by way of shared memory, a step ahead; " \
       "2: by TMA, where it reads rows of a tensor")                                               \
  KNOB(keys_in_product, (0, 1), 0, 1,                                                              \
       "1: what a score adds for each key is a part of Q K^T, whose depth is 16 larger")           \
  KNOB(skip_far, (0, 1), 0, 1,                                                                     \
       "1: keys so far from the query that a score makes their P 0 are left out; a kernel before " \
       "this one finds the largest norms of Q and K")                                              \
  KNOB(direct_store, (0, 1), 0, 1,                                                                 \
       "1: O is stored from registers; 0: through shared memory by TMA")                           \
  KNOB(ascending_keys, (0, 1), 0, 1,                                                               \
       "1: the walk is from the first keys to the last; 0: from the last to the first")            \
  KNOB(lpt, (0, 1), 0, 1, "1: tiles start in order of their length; 0: in balanced pairs")         \
  KNOB(                                                                                            \
      multicast, (0, 1, 2), 0, 2,                                                                  \
      "1: two blocks share each K and V tile, each loading half for both; 2: blocks of two heads " \
      "do so")                                                                                     \
  FT_PACK_GQA_KNOB(KNOB)                                                                           \
  FT_SPLIT_KEYS_KNOB(KNOB)                                                                         \
  KNOB(two_level, (0), 0, 64,                                                                      \
       "of e4m3: steps after which the short sums of P V are added to fp32 ones; 0: at the end")   \
  KNOB(v_by_columns, (0, 1), 0, 1,                                                                 \
       "of e4m3, 1: a kernel before this one turns V around, once; 0: each block does, at each "   \
       "step")

/* With skip_far the first kernel finds the largest norm of each part of a head's rows:
 * templates/parts/near_keys.cu.in. */
enum { FT_NORM_PARTS = 8, FT_NORM_WARPS = 8 };

/* Dense, per multiprocessor: data sheets of the H100. */
enum { FT_WGMMA_FLOPS_PER_CLK = 4096 };

/* Tiles lie as panels whose rows are 128 bytes, swizzled: 64 columns, of e4m3 128. */
#define FT_WGMMA_FORWARD_BUDGET(TEMPLATE, HOST)                                                    \
  TEMPLATE(d_pad, "head dim of Q, K as the products take it: the next multiple of 16")             \
  TEMPLATE(d_panels, "panels of Q, K")                                                             \
  TEMPLATE(dv_panels, "panels of V, O")                                                            \
  TEMPLATE(smem_q_offset,                                                                          \
           "Q stages, behind the barriers; O is staged in the place of its tile's Q")              \
  TEMPLATE(smem_k_offset, "K stages")                                                              \
  TEMPLATE(smem_v_offset, "V stages")                                                              \
  TEMPLATE(smem_p_offset, "P tiles of the consumers, if P is in shared memory")                    \
  TEMPLATE(smem_v_rows_offset, "V by rows, a stage for each of V, if V is transposed")             \
  TEMPLATE(smem_score_offset, "what a score reads of each query and key, of a step")               \
  TEMPLATE(smem_keys_offset, "what a score adds for each key of a step, for each consumer")        \
  TEMPLATE(smem_parts_offset, "O and LSE of a part of a cluster, where K and V were before")       \
  TEMPLATE(producer_regs, "registers of a producer thread, by setmaxnreg")                         \
  TEMPLATE(consumer_regs, "registers of a consumer thread, by setmaxnreg")                         \
  TEMPLATE(loaders,                                                                                \
           "warps that ask for K and V in pages, each for a share of both; 1: one for K, "         \
           "one for V")                                                                            \
  TEMPLATE(skipped_steps, "most steps of a tile that a warpgroup skips, as its rows see none of "  \
                          "their keys: all it does is to "                                         \
                          "give their stages back")                                                \
  HOST(q_bytes, "of one Q stage, which has room for O, too")                                       \
  HOST(k_bytes, "of one K stage")                                                                  \
  HOST(v_bytes, "of one V stage")                                                                  \
  HOST(turning_bytes, "shared memory of the kernel that turns V around, if there is one")          \
  HOST(v_rows_bytes, "of one stage of V by rows, 0 if V is not transposed")                        \
  HOST(o_bytes, "of the staged O tile")                                                            \
  HOST(p_bytes, "of P of all consumers, 0 if it stays in registers")                               \
  HOST(dv_pad, "head dim of V, O as the products take it: as it is")                               \
  HOST(consumers, "warpgroups that compute, 64 query rows each; one more is the producer")         \
  HOST(regs_s, "registers for S")                                                                  \
  HOST(regs_p, "registers for P")                                                                  \
  HOST(regs_o, "registers for O")

FT_DECLARE_FAMILY(wgmma_forward, FT_WGMMA_FORWARD_KNOBS, FT_WGMMA_FORWARD_BUDGET);

void ft_wgmma_forward_plan(struct ft_budget *budget, const struct ft_request *request,
                           const struct ft_config *config, const struct ft_arch *arch);

/* false: no config is legal, or one of mma_forward is better. */
bool ft_wgmma_forward_default(const struct ft_request *request, const struct ft_arch *arch,
                              struct ft_config *config);

/* Adapts the default config of a request with a score function to at most 2048 queries and keys.
 * Any other request keeps its config. */
void ft_wgmma_forward_few_scored(const struct ft_request *request, const struct ft_arch *arch,
                                 struct ft_config *config);

/* Of one whose score makes P of keys far from the query 0 it leaves those out, where that pays. */
void ft_wgmma_forward_far_scored(const struct ft_request *request, const struct ft_arch *arch,
                                 struct ft_config *config);

/* Adapts the default config of a request whose K and V lie in pages to what an H200 showed to be
 * faster. Any other request keeps its config. */
void ft_wgmma_forward_of_pages(const struct ft_request *request, const struct ft_arch *arch,
                               struct ft_config *config);

/* Of a request of e4m3 it lets a kernel turn V around before, where that pays. */
void ft_wgmma_forward_turned(const struct ft_request *request, const struct ft_arch *arch,
                             struct ft_config *config);

/* The default of a small problem. false: the request is no small problem, or one that was not
 * measured; then *config is as it was. */
bool ft_wgmma_forward_small(const struct ft_request *request, const struct ft_arch *arch,
                            struct ft_config *config);

/* Whether a config is legal and its registers suffice. The rules allow a few more registers than
 * the estimate: for the search to find out, not for a default. */
bool ft_wgmma_forward_fits(const struct ft_request *request, const struct ft_arch *arch,
                           const struct ft_config *config);

/* Blocks that share each K and V tile. */
int ft_wgmma_forward_cluster(const struct ft_config *config);

/* Fills in what the family says of walks. */
void ft_wgmma_forward_walks(struct ft_walks *walks, const struct ft_request *request,
                            const struct ft_config *config, const struct ft_budget *budget);

/* What a run of a request with lengths has to do. */
struct ft_walks ft_wgmma_forward_walks_of(const struct ft_request *request,
                                          const struct ft_config *config,
                                          const struct ft_arch *arch);

#endif
