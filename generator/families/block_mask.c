/* block_mask.c: the kernels that make a block mask from a mask function.
 * in -> out: request -> budget. */
#include "generator/families/block_mask.h"

#include <string.h>

#include "generator/families/own_kernel.h"

FT_DEFINE_TABLES(FT_BLOCK_MASK_KNOBS, FT_BLOCK_MASK_BUDGET);

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const struct ft_block_mask_budget own = {.warps = 4};
  (void)request, (void)config;
  ft_plan_threads(budget, 32 * own.warps, arch);
  memcpy(budget->own, &own, sizeof own);
}

FT_OWN_KERNEL_FAMILY(block_mask, ft_serves_everywhere);

struct ft_request ft_block_mask_request(int64_t score, int mask_rows, int mask_cols) {
  enum { ANY_DIM = 64 };
  return (struct ft_request){.pass = FT_FORWARD,
                             .dtype = FT_FP16, /* which all targets have */
                             .head_dim = ANY_DIM,
                             .head_dim_v = ANY_DIM,
                             .heads_q = 1,
                             .heads_kv = 1,
                             .batch = 1,
                             .seqlen_q = 1,
                             .seqlen_k = 1,
                             .window_left = -1,
                             .window_right = -1,
                             .score = score,
                             .mask_rows = mask_rows,
                             .mask_cols = mask_cols,
                             .mask_density = 1,
                             .mask_longest = 1};
}
