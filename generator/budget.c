/* budget.c: shared memory and registers of one candidate.
 * in -> out: request + config + arch -> struct ft_budget, by the family's plan; occupancy. */
#include "generator/budget.h"

#include "generator/family.h"
#include "generator/families/plan.h"

const struct ft_budget_field *ft_budget_common(const struct ft_budget *budget, int index,
                                               int *value) {
  static const struct ft_budget_field fields[] = {
      {"threads", "of a block", true},
      {"smem_bytes", "dynamic shared memory of a block", true},
      {"ctas_per_sm", "blocks that the registers are to suffice for", false},
      {"regs_estimate", "registers at the peak", true},
      {"regs_limit", "registers that a thread may have", true},
      {"launch_regs", "registers with which every thread begins", false},
  };
  const int values[] = {budget->threads,       budget->smem_bytes, budget->ctas_per_sm,
                        budget->regs_estimate, budget->regs_limit, budget->launch_regs};
  static_assert(FT_COUNT(values) == FT_COUNT(fields), "a value for each field");
  if (index < 0 || index >= FT_COUNT(fields)) return NULL;
  *value = values[index];
  return &fields[index];
}

struct ft_budget ft_budget_of(const struct ft_request *request, const struct ft_config *config,
                              const struct ft_arch *arch) {
  struct ft_budget budget = {0};
  if (ft_config_out_of_range(config) == NULL) config->family->plan(&budget, request, config, arch);
  return budget;
}

int ft_budget_occupancy(const struct ft_budget *budget, const struct ft_arch *arch, int registers) {
  enum { QUARTERS = 4, REGISTER_UNIT = 256 }; /* warps live in quarters of the multiprocessor */
  if (budget->threads < 1 || budget->threads > 1024) return 0;
  if (registers < 1 || registers > 255 || budget->smem_bytes > arch->smem_per_block) return 0;

  const int by_smem = arch->smem_per_sm / max_int(1, budget->smem_bytes + arch->smem_reserved);
  const int by_threads = arch->threads_per_sm / budget->threads;
  const int regs_per_warp = round_up(32 * registers, REGISTER_UNIT);
  const int warps = QUARTERS * (arch->regs_per_sm / QUARTERS / regs_per_warp);
  const int by_regs = warps / (budget->threads / 32);
  return min_int(min_int(by_smem, by_threads), min_int(by_regs, arch->blocks_per_sm));
}

int ft_budget_registers(const struct ft_budget *budget) {
  return budget->launch_regs > 0 ? budget->launch_regs
                                 : min_int(budget->regs_estimate, budget->regs_limit);
}
