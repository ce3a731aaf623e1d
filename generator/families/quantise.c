/* quantise.c: the kernels that turn a tensor into e4m3 with descales.
 * in -> out: request -> budget. */
#include "generator/families/quantise.h"

#include <string.h>

#include "generator/families/plan.h"

FT_DEFINE_TABLES(FT_QUANTISE_KNOBS, FT_QUANTISE_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { WITH_E4M3 = 89 };
  return arch->sm >= WITH_E4M3 && request->dtype != FT_E4M3;
}

/* Lanes of a row, eight columns each: a power of two. */
static int lanes_of(int head_dim) {
  int lanes = 2;
  while (8 * lanes < head_dim) lanes *= 2;
  return lanes;
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const int threads = 32 * ft_config_block_m(config);
  const struct ft_quantise_budget own = {.rows = threads / lanes_of(request->head_dim) *
                                                 ft_quantise_knobs(config)->turns};
  budget->threads = threads;
  budget->ctas_per_sm = 1;
  budget->regs_limit = budget->regs_estimate = ft_registers_for(arch, threads, 4);
  memcpy(budget->own, &own, sizeof own);
}

static bool default_config(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  (void)request, (void)arch;
  *config = ft_quantise_config();
  return true;
}

const struct ft_family ft_quantise_family = {
    .name = "quantise",
    .pass = FT_FORWARD,
    .instructions = "none",
    .target_suffix = "",
    .template_name = "quantise.cu.in",
    .serves = serves,
    .schedule = ft_schedule_lpt,
    .knobs = knob_table,
    .knob_count = FT_COUNT(knob_table),
    .budget_fields = budget_table,
    .budget_field_count = FT_COUNT(budget_table),
    .plan = plan,
    .default_config = default_config,
};

struct ft_config ft_quantise_config(void) {
  return FT_CONFIG(quantise, .block_m = 8, .block_n = 16, .turns = 4);
}
