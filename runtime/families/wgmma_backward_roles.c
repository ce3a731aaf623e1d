/* wgmma_backward_roles.c: the launch of the gradients of wide heads by clusters of two.
 * in -> out: plan + fatune_arguments -> struct ft_tiled_backward_params, three kernels, tensor
 * maps. */
#include "runtime/families/wgmma_backward_roles.h"

#include "generator/emit.h"
#include "generator/families/wgmma_backward_roles.h"
#include "generator/status.h"
#include "runtime/families/tiled_backward.h"

enum {
  BLOCKS = 2,         /* that have a key tile together */
  ADDERS = 4 * BLOCKS /* warps that share a query tile's dQ out */
};

static struct ft_backward_work work_of(const struct ft_launch_plan *plan) {
  const struct ft_wgmma_backward_roles_budget *const budget =
      ft_wgmma_backward_roles_budget(plan->budget);
  struct ft_backward_work work =
      ft_tiled_backward_work(plan, budget->dq_sums, budget->d_pad, ADDERS, budget->prepare_threads);
  work.blocks = BLOCKS;
  work.early_dq = ft_wgmma_backward_roles_knobs(plan->config)->early_dq == 1;
  return work;
}

static int workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                     size_t *bytes) {
  const struct ft_backward_work work = work_of(plan);
  return ft_backward_workspace(plan, &work, arguments, bytes);
}

static int prepare(struct ft_launch *launch, const fatune_arguments *arguments) {
  const struct ft_wgmma_backward_roles_budget *const budget =
      ft_wgmma_backward_roles_budget(launch->plan->budget);
  const struct ft_tiled_backward tiled = {.work = work_of(launch->plan),
                                          .prepare_threads = budget->prepare_threads,
                                          .dq_threads = budget->dq_threads,
                                          .dq_smem = budget->dq_smem};
  return ft_tiled_backward_prepare(launch, &tiled, arguments);
}

static int map_tensors(struct ft_launch *launch, const struct ft_driver *driver) {
  const int keys = ft_config_block_n(launch->plan->config) / BLOCKS;
  return ft_tiled_backward_map(launch, keys, keys, driver);
}

static void describe(const struct ft_launch *launch, int kernel,
                     struct ft_launch_tensors *tensors) {
  const struct ft_backward_work work = work_of(launch->plan);
  ft_tiled_backward_describe(launch, &work, kernel, tensors);
}

const struct ft_launch_family ft_wgmma_backward_roles_launch = {
    .family = &ft_wgmma_backward_roles_family,
    .entries = {[FT_BACKWARD_LIST] = FT_ENTRY_WORK_LIST,
                [FT_BACKWARD_PREPARE] = FT_ENTRY_PREPARE,
                [FT_BACKWARD_MAIN] = FT_ENTRY,
                [FT_BACKWARD_CONVERT] = FT_ENTRY_CONVERT},
    .kernel_count = FT_BACKWARD_KERNELS,
    .optional = 1u << FT_BACKWARD_LIST,
    .main = FT_BACKWARD_MAIN,
    .prepare = prepare,
    .map_tensors = map_tensors,
    .workspace = workspace,
    .describe = describe};
