/* arch.c: names derived from a GPU's limits.
 * in -> out: struct ft_arch, a config's family -> target text. The GPU table itself is
 * templates/gpus.lua. */
#include "generator/arch.h"

#include <stdio.h>

#include "generator/family.h"

void ft_arch_target(const struct ft_arch *arch, char *buffer) {
  (void)snprintf(buffer, 16, "sm_%d", arch->sm);
}

void ft_config_target(const struct ft_config *config, const struct ft_arch *arch, char *buffer) {
  (void)snprintf(buffer, 16, "sm_%d%s", arch->sm, config->family->target_suffix);
}
