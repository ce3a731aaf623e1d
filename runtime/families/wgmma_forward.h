/* wgmma_forward.h: the launch of the forward by wgmma and TMA. */
#ifndef RUNTIME_FAMILIES_WGMMA_FORWARD_H
#define RUNTIME_FAMILIES_WGMMA_FORWARD_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_wgmma_forward_launch;

#endif
