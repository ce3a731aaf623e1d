/* mma_forward.h: the launch of the forward by mma.sync. */
#ifndef RUNTIME_FAMILIES_MMA_FORWARD_H
#define RUNTIME_FAMILIES_MMA_FORWARD_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_mma_forward_launch;

#endif
