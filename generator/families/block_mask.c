/* block_mask.c: the kernels that make a block mask from a mask function.
 * in -> out: request -> budget. */
#include "generator/families/block_mask.h"

#include <string.h>

#include "generator/families/plan.h"

FT_DEFINE_TABLES(FT_BLOCK_MASK_KNOBS, FT_BLOCK_MASK_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  (void)request, (void)arch; /* wherever anything does */
  return true;
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const struct ft_block_mask_budget own = {.warps = 4};
  (void)request, (void)config;
  budget->threads = 32 * own.warps;
  budget->ctas_per_sm = 1;
  budget->regs_limit = budget->regs_estimate = ft_registers_for(arch, budget->threads, 4);
  memcpy(budget->own, &own, sizeof own);
}

static bool default_config(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  (void)request, (void)arch;
  *config = ft_block_mask_config();
  return true;
}

const struct ft_family ft_block_mask_family = {
    .name = "block_mask",
    .pass = FT_FORWARD,
    .instructions = "none",
    .target_suffix = "",
    .template_name = "block_mask.cu.in",
    .serves = serves,
    .schedule = ft_schedule_lpt,
    .knobs = knob_table,
    .knob_count = FT_COUNT(knob_table),
    .budget_fields = budget_table,
    .budget_field_count = FT_COUNT(budget_table),
    .plan = plan,
    .default_config = default_config,
};

struct ft_config ft_block_mask_config(void) {
  return FT_CONFIG(block_mask, .block_m = 16, .block_n = 16);
}

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
                             .mask_density = 1};
}
