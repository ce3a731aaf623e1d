/* merge.c: how the kernel of fatune_merge is loaded; runtime/merge.c launches it.
 * in -> out: its entry. */
#include "runtime/families/merge.h"

#include "generator/emit.h"
#include "generator/families/merge.h"

const struct ft_launch_family ft_merge_launch = {
    .family = &ft_merge_family, .entries = {FT_ENTRY}, .kernel_count = 1};
