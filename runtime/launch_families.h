/* launch_families.h: the one list of the launches of kernel families.
 * in -> out: the generator's family -> its launch. */
#ifndef RUNTIME_LAUNCH_FAMILIES_H
#define RUNTIME_LAUNCH_FAMILIES_H

#include "runtime/launch_family.h"

/* Every family of the generator has one. */
const struct ft_launch_family *ft_launch_family_of(const struct ft_family *family);

#endif
