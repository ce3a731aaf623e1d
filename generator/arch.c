/* arch.c: what is derived from a GPU's limits.
 * in -> out: struct ft_arch, a config's family -> target text, rates. The GPU table itself is
 * templates/gpus.lua. */
#include "generator/arch.h"

#include <stdio.h>

#include "generator/family.h"

bool ft_has_mma_of_e4m3(const struct ft_arch *arch) {
  return arch->sm == 89 || arch->sm >= 120;
}

double ft_mma_flops_per_clk(const struct ft_arch *arch, enum ft_dtype dtype) {
  if (dtype == FT_E4M3) return (ft_has_mma_of_e4m3(arch) ? 2 : 1) * arch->mma_flops_per_clk;
  return arch->mma_flops_per_clk / ft_dtype_mma_cost(dtype);
}

void ft_arch_target(const struct ft_arch *arch, char *buffer) {
  (void)snprintf(buffer, 16, "sm_%d", arch->sm);
}

void ft_config_target(const struct ft_config *config, const struct ft_arch *arch, char *buffer) {
  (void)snprintf(buffer, 16, "sm_%d%s", arch->sm, config->family->target_suffix);
}
