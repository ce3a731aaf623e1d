/* append.c: how the kernel of fatune_append is loaded; runtime/append.c launches it.
 * in -> out: its entry. */
#include "runtime/families/append.h"

#include "generator/emit.h"
#include "generator/families/append.h"

const struct ft_launch_family ft_append_launch = {
    .family = &ft_append_family, .entries = {FT_ENTRY}, .kernel_count = 1, .main = 0};
