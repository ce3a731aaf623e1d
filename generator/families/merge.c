/* merge.c: the kernel that puts the results of separate forwards together.
 * in -> out: request -> budget. */
#include "generator/families/merge.h"

#include <string.h>

#include "generator/families/own_kernel.h"

FT_DEFINE_TABLES(FT_MERGE_KNOBS, FT_MERGE_BUDGET);

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const struct ft_merge_budget own = {.d_pad = request->head_dim_v};
  ft_plan_threads(budget, 32 * ft_config_block_m(config), arch);
  memcpy(budget->own, &own, sizeof own);
}

FT_OWN_KERNEL_FAMILY(merge, ft_serves_everywhere);
