/* wgmma_backward.c: the launch of the gradients by wgmma and TMA.
 * in -> out: plan + fatune_arguments -> struct ft_tiled_backward_params, three kernels, tensor
 * maps. The first and the last kernel take the argument's first member alone. */
#include "runtime/families/wgmma_backward.h"

#include "generator/emit.h"
#include "generator/families/wgmma_backward.h"
#include "generator/status.h"
#include "runtime/families/backward.h"
#include "runtime/tensor_maps.h"

static_assert(offsetof(struct ft_tiled_backward_params, rest) == 0, "the first member");

static struct ft_backward_work work_of(const struct ft_launch_plan *plan) {
  enum { STATISTICS = 2 };
  const struct ft_wgmma_backward_budget *const budget = ft_wgmma_backward_budget(plan->budget);
  const int64_t rows = ft_config_block_m(plan->config);
  return (struct ft_backward_work){.dq_sum = budget->dq_sums * rows * budget->d_pad,
                                   .row_stats = rows * STATISTICS};
}

static int workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                     size_t *bytes) {
  const struct ft_backward_work work = work_of(plan);
  return ft_backward_workspace(plan, &work, arguments, bytes);
}

static int prepare(struct ft_launch *launch, const fatune_arguments *arguments) {
  const struct ft_launch_plan *const plan = launch->plan;
  const struct ft_wgmma_backward_budget *const budget = ft_wgmma_backward_budget(plan->budget);
  const struct ft_backward_work work = work_of(plan);
  int64_t q_tiles, k_tiles;
  FT_TRY(ft_backward_prepare(&launch->argument.tiled_backward.rest, plan, &work, arguments,
                             &q_tiles, &k_tiles));
  launch->kernels[FT_BACKWARD_PREPARE] =
      (struct ft_launch_kernel){.grid = (unsigned)q_tiles, .threads = budget->prepare_threads};
  launch->kernels[FT_BACKWARD_MAIN] =
      (struct ft_launch_kernel){.grid = (unsigned)k_tiles,
                                .threads = plan->budget->threads,
                                .smem_bytes = plan->budget->smem_bytes};
  launch->kernels[FT_BACKWARD_CONVERT] = (struct ft_launch_kernel){
      .grid = (unsigned)q_tiles, .threads = budget->dq_threads, .smem_bytes = budget->dq_smem};
  return FT_OK;
}

static int map_tensors(struct ft_launch *launch, const struct ft_driver *driver) {
  enum { CONSUMER_KEYS = 64 };
  struct ft_tiled_backward_params *const tiled = &launch->argument.tiled_backward;
  const struct ft_backward_params *const p = &tiled->rest;
  const struct ft_arg_sequence *const sequence = &p->sequence;
  const struct ft_request *const request = launch->plan->request;
  const int nq = sequence->nq, nk = sequence->nk, batch = sequence->batch;
  const int heads_q = sequence->heads_q, heads_kv = sequence->heads_kv;
  const int q_rows = ft_config_block_m(launch->plan->config);
  const int k_rows = ft_config_block_n(launch->plan->config);
  const int d = request->head_dim, dv = request->head_dim_v;
  const struct ft_mapped tensors[] = {
      {"q", &tiled->q, &p->q, d, nq, heads_q, batch, q_rows, 0},
      {"k", &tiled->k, &p->k, d, nk, heads_kv, batch, k_rows, 0},
      {"v", &tiled->v, &p->v, dv, nk, heads_kv, batch, k_rows, 0},
      {"dout", &tiled->dout, &p->dout, dv, nq, heads_q, batch, q_rows, 0},
      {"dk", &tiled->dk, &p->dk, d, nk, heads_kv, batch, CONSUMER_KEYS, 0},
      {"dv", &tiled->dv, &p->dv, dv, nk, heads_kv, batch, CONSUMER_KEYS, 0}};
  return ft_map_tensors(tensors, FT_COUNT(tensors), request->dtype, launch->plan->maps, driver);
}

static void describe(const struct ft_launch *launch, int kernel,
                     struct ft_launch_tensors *tensors) {
  const struct ft_backward_work work = work_of(launch->plan);
  ft_backward_describe(&launch->argument.tiled_backward.rest, launch->plan->request, &work,
                       launch->kernels[FT_BACKWARD_PREPARE].grid, (enum ft_backward_kernel)kernel,
                       tensors);
}

const struct ft_launch_family ft_wgmma_backward_launch = {
    .family = &ft_wgmma_backward_family,
    .entries = {[FT_BACKWARD_PREPARE] = FT_ENTRY_PREPARE,
                [FT_BACKWARD_MAIN] = FT_ENTRY,
                [FT_BACKWARD_CONVERT] = FT_ENTRY_CONVERT},
    .kernel_count = FT_BACKWARD_KERNELS,
    .main = FT_BACKWARD_MAIN,
    .prepare = prepare,
    .map_tensors = map_tensors,
    .workspace = workspace,
    .describe = describe};
