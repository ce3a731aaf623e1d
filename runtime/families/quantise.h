/* quantise.h: how the kernels of fatune_quantise are loaded. */
#ifndef RUNTIME_FAMILIES_QUANTISE_H
#define RUNTIME_FAMILIES_QUANTISE_H

#include "runtime/launch_family.h"

extern const struct ft_launch_family ft_quantise_launch;

#endif
