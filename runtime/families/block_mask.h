/* block_mask.h: how the kernels that make a block mask from a mask function are loaded. */
#ifndef RUNTIME_FAMILIES_BLOCK_MASK_H
#define RUNTIME_FAMILIES_BLOCK_MASK_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_block_mask_launch;

#endif
