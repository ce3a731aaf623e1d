/* wgmma_backward_roles.h: the launch of the gradients of wide heads by clusters of two. */
#ifndef RUNTIME_FAMILIES_WGMMA_BACKWARD_ROLES_H
#define RUNTIME_FAMILIES_WGMMA_BACKWARD_ROLES_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_wgmma_backward_roles_launch;

#endif
