/* append.h: how the kernel of fatune_append is loaded. */
#ifndef RUNTIME_FAMILIES_APPEND_H
#define RUNTIME_FAMILIES_APPEND_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_append_launch;

#endif
