/* family.c: the one list of kernel families.
 * in -> out: index or name -> struct ft_family. */
#include <string.h>

#include "generator/families/mma_backward.h"
#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_backward.h"
#include "generator/families/wgmma_backward_roles.h"
#include "generator/families/wgmma_forward.h"

static const struct ft_family *const families[] = {
    &ft_mma_forward_family,    &ft_wgmma_forward_family,        &ft_mma_backward_family,
    &ft_wgmma_backward_family, &ft_wgmma_backward_roles_family,
};

const struct ft_family *ft_family_at(int index) {
  return index >= 0 && index < FT_COUNT(families) ? families[index] : NULL;
}

const struct ft_family *ft_family_named(const char *name) {
  for (int i = 0; i < FT_COUNT(families); ++i)
    if (strcmp(name, families[i]->name) == 0) return families[i];
  return NULL;
}

bool ft_family_serves(const struct ft_family *family, const struct ft_request *request,
                      const struct ft_arch *arch) {
  return family->pass == request->pass && family->serves(request, arch);
}
