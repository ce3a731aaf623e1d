/* merge.c: the kernel that puts the results of separate forwards together.
 * in -> out: request -> budget. */
#include "generator/families/merge.h"

#include <string.h>

#include "generator/families/plan.h"

FT_DEFINE_TABLES(FT_MERGE_KNOBS, FT_MERGE_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  (void)request, (void)arch; /* wherever anything does */
  return true;
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const struct ft_merge_budget own = {.d_pad = request->head_dim_v};
  budget->threads = 32 * ft_config_block_m(config);
  budget->ctas_per_sm = 1;
  budget->regs_limit = budget->regs_estimate = ft_registers_for(arch, budget->threads, 4);
  memcpy(budget->own, &own, sizeof own);
}

static bool default_config(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  (void)request, (void)arch;
  *config = ft_merge_config();
  return true;
}

const struct ft_family ft_merge_family = {
    .name = "merge",
    .pass = FT_FORWARD,
    .instructions = "none",
    .target_suffix = "",
    .template_name = "merge.cu.in",
    .serves = serves,
    .schedule = ft_schedule_lpt,
    .knobs = knob_table,
    .knob_count = FT_COUNT(knob_table),
    .budget_fields = budget_table,
    .budget_field_count = FT_COUNT(budget_table),
    .plan = plan,
    .default_config = default_config,
};

struct ft_config ft_merge_config(void) {
  return FT_CONFIG(merge, .block_m = 4, .block_n = 16);
}
