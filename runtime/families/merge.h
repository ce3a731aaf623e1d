/* merge.h: how the kernel of fatune_merge is loaded. */
#ifndef RUNTIME_FAMILIES_MERGE_H
#define RUNTIME_FAMILIES_MERGE_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_merge_launch;

#endif
