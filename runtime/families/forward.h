/* forward.h: what the launches of all forward families have in common.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params; those -> the memory of a run. */
#ifndef RUNTIME_FAMILIES_FORWARD_H
#define RUNTIME_FAMILIES_FORWARD_H

#include "generator/key_parts.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_family.h"

/* Checks everything and fills all fields but schedule.remainder_heads, which only
 * FT_SCHEDULE_BALANCED reads. pack: query heads that share a tile; *blocks: work tiles of all
 * batch_heads. */
int ft_forward_prepare(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                       const struct ft_run *run, const fatune_arguments *arguments,
                       struct ft_pack pack, int64_t *blocks);

/* Bytes of K and V of one kv head. */
int64_t ft_forward_kv_bytes(const struct ft_request *request, const struct ft_run *run);

/* Divides the walks of a prepared run into parts, as many as are expected to take least time.
 * walks: what the family says of them. *units: work tiles, then parts of all of them. Without a
 * workspace nothing is divided. */
int ft_forward_divide(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                      const struct ft_run *run, const fatune_arguments *arguments,
                      struct ft_walks *walks, int64_t *units);

/* Query heads that share a tile in this run. */
struct ft_pack ft_forward_pack(const struct ft_launch_plan *plan, const struct ft_run *run,
                               const fatune_arguments *arguments);

/* *blocks holds the number of work tiles. Where each tile has a cluster, whose `parts` blocks are
 * the tile's parts, it becomes the number of blocks of all clusters; else it stays. */
int ft_forward_clusters(const struct ft_launch_plan *plan, int parts, int64_t *blocks);

/* The kernel that puts parts together; of no blocks where there is nothing to put together. */
struct ft_launch_kernel ft_forward_merge(const struct ft_forward_params *params,
                                         const struct ft_launch_plan *plan, int64_t tiles);

/* Bytes for the list of work tiles of a ragged run; of another 0. */
int ft_forward_list_bytes(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                          size_t *bytes);

/* Bytes for the parts of any run of at most these lengths. */
int ft_forward_workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                         struct ft_walks *walks, size_t *bytes);
void ft_forward_describe_parts(const struct ft_forward_params *params, int head_dim_v, bool written,
                               struct ft_launch_tensors *tensors);

void ft_forward_describe_descales(const struct ft_arg_descales *descales, int64_t batch,
                                  int descale_rows, struct ft_launch_tensors *tensors);
/* makes_list: whether the kernel that is described is fatune_work_list, which alone writes the list
 * of work tiles. in_halves: whether strides of what is in e4m3 are in units of two bytes. */
void ft_forward_describe(const struct ft_forward_params *params, const struct ft_launch_plan *plan,
                         bool makes_list, bool in_halves, struct ft_launch_tensors *tensors);

#endif
