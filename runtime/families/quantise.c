/* quantise.c: how the kernels of fatune_quantise are loaded; runtime/quantise.c launches them.
 * in -> out: their entries. */
#include "runtime/families/quantise.h"

#include "generator/emit.h"
#include "generator/families/quantise.h"

const struct ft_launch_family ft_quantise_launch = {
    .family = &ft_quantise_family,
    .entries = {FT_ENTRY_PREPARE, FT_ENTRY, FT_ENTRY_HEADS},
    .kernel_count = 3,
    .optional = 1U << 2,
    .clustered = 1U << 2,
    .main = 1};
