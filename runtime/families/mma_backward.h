/* mma_backward.h: the launch of the gradients by mma.sync. */
#ifndef RUNTIME_FAMILIES_MMA_BACKWARD_H
#define RUNTIME_FAMILIES_MMA_BACKWARD_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_mma_backward_launch;

#endif
