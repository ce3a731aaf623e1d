/* wgmma_backward.h: the launch of the gradients by wgmma and TMA. */
#ifndef RUNTIME_FAMILIES_WGMMA_BACKWARD_H
#define RUNTIME_FAMILIES_WGMMA_BACKWARD_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_wgmma_backward_launch;

#endif
