/* forward.h: what the launches of all forward families have in common.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params; those -> the memory of a run. */
#ifndef RUNTIME_FAMILIES_FORWARD_H
#define RUNTIME_FAMILIES_FORWARD_H

#include "runtime/launch_checks.h"
#include "runtime/launch_family.h"

/* Checks everything and fills all fields but schedule.remainder_heads, which only
 * FT_SCHEDULE_BALANCED reads. packed_heads: query heads that share a tile; *blocks: work tiles of
 * all batch_heads. */
int ft_forward_prepare(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                       const struct ft_run *run, const fatune_arguments *arguments,
                       int packed_heads, int64_t *blocks);

/* Bytes of K and V of one kv head. */
int64_t ft_forward_kv_bytes(const struct ft_request *request, const struct ft_run *run);

void ft_forward_describe(const struct ft_forward_params *params, const struct ft_launch_plan *plan,
                         struct ft_launch_tensors *tensors);

#endif
