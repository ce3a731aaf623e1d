/* launch_families.c: the one list of the launches of kernel families.
 * in -> out: the generator's family -> its launch. */
#include "runtime/launch_families.h"

#include <stddef.h>

#include "runtime/families/append.h"
#include "runtime/families/block_mask.h"
#include "runtime/families/merge.h"
#include "runtime/families/mma_backward.h"
#include "runtime/families/mma_forward.h"
#include "runtime/families/quantise.h"
#include "runtime/families/wgmma_backward.h"
#include "runtime/families/wgmma_backward_roles.h"
#include "runtime/families/wgmma_forward.h"

static const struct ft_launch_family *const families[] = {
    &ft_mma_forward_launch,
    &ft_wgmma_forward_launch,
    &ft_mma_backward_launch,
    &ft_wgmma_backward_launch,
    &ft_wgmma_backward_roles_launch,
    &ft_merge_launch,
    &ft_block_mask_launch,
    &ft_quantise_launch,
    &ft_append_launch,
};

const struct ft_launch_family *ft_launch_family_of(const struct ft_family *family) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (families[i]->family == family) return families[i];
  return NULL;
}
