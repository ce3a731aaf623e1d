/* arch.c: names derived from a GPU's limits.
 * in -> out: struct ft_arch -> target text. The GPU table itself is templates/gpus.lua. */
#include "generator/arch.h"

#include <stdio.h>

void ft_arch_target(const struct ft_arch *arch, char *buffer) {
  (void)snprintf(buffer, 16, "sm_%d", arch->sm);
}
