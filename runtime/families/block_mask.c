/* block_mask.c: how the kernels that make a block mask from a mask function are loaded;
 * runtime/visible_mask.c launches them.
 * in -> out: their entries. */
#include "runtime/families/block_mask.h"

#include "generator/emit.h"
#include "generator/families/block_mask.h"

const struct ft_launch_family ft_block_mask_launch = {
    .family = &ft_block_mask_family,
    .entries = {FT_ENTRY_RANGES, FT_ENTRY, FT_ENTRY_LISTS, FT_ENTRY_ORDER},
    .kernel_count = 4,
    .main = 1};
