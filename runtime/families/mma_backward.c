/* mma_backward.c: the launch of the gradients by mma.sync.
 * in -> out: plan + fatune_arguments -> struct ft_backward_params, three kernels. */
#include "runtime/families/mma_backward.h"

#include "generator/emit.h"
#include "generator/families/mma_backward.h"
#include "generator/status.h"
#include "runtime/families/backward.h"
#include "runtime/families/ragged.h"
#include "runtime/launch_score.h"

static struct ft_backward_work work_of(const struct ft_launch_plan *plan) {
  enum { STATISTICS = 2 };
  const struct ft_mma_backward_knobs *const knobs = ft_mma_backward_knobs(plan->config);
  const struct ft_mma_backward_budget *const budget = ft_mma_backward_budget(plan->budget);
  const int counters = knobs->dq_mode == FT_DQ_ORDERED ? knobs->warps : 0; /* of each sum */
  return (struct ft_backward_work){
      .dq_sum = (int64_t)budget->dq_sums * knobs->block_m * budget->d_pad,
      .row_stats = (int64_t)knobs->block_m * STATISTICS,
      .counters = (int64_t)budget->dq_sums * counters,
      .sink_sums = ft_backward_sink_sums(plan->request, plan->budget->threads),
      .blocks = 1};
}

static int workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                     size_t *bytes) {
  const struct ft_backward_work work = work_of(plan);
  return ft_backward_workspace(plan, &work, arguments, bytes);
}

static_assert(offsetof(struct ft_scored_backward_params, rest) == 0, "the first member");

static int prepare(struct ft_launch *launch, const fatune_arguments *arguments) {
  const struct ft_launch_plan *const plan = launch->plan;
  const struct ft_mma_backward_budget *const budget = ft_mma_backward_budget(plan->budget);
  const struct ft_backward_work work = work_of(plan);
  int64_t q_tiles, k_tiles;
  struct ft_scored_backward_params *const params = &launch->argument.scored_backward;
  FT_TRY(ft_backward_prepare(&params->rest, &params->score, plan, &work, arguments, &q_tiles,
                             &k_tiles));
  const bool early = plan->arch->sm >= 90;
  launch->kernels[FT_BACKWARD_LIST] = ft_ragged_list(&params->rest.ragged);
  launch->kernels[FT_BACKWARD_PREPARE] =
      (struct ft_launch_kernel){.grid = (unsigned)q_tiles, .threads = plan->budget->threads};
  launch->kernels[FT_BACKWARD_MAIN] =
      (struct ft_launch_kernel){.grid = (unsigned)k_tiles,
                                .threads = plan->budget->threads,
                                .smem_bytes = plan->budget->smem_bytes,
                                .early = early};
  launch->kernels[FT_BACKWARD_CONVERT] = (struct ft_launch_kernel){.grid = (unsigned)q_tiles,
                                                                   .threads = budget->dq_threads,
                                                                   .smem_bytes = budget->dq_smem,
                                                                   .early = early};
  return FT_OK;
}

static void describe(const struct ft_launch *launch, int kernel,
                     struct ft_launch_tensors *tensors) {
  const struct ft_backward_work work = work_of(launch->plan);
  const struct ft_scored_backward_params *const params = &launch->argument.scored_backward;
  ft_backward_describe(&params->rest, launch->plan->request, &work,
                       launch->kernels[FT_BACKWARD_PREPARE].grid, (enum ft_backward_kernel)kernel,
                       tensors);
  ft_add_captured(tensors, &params->score, launch->plan->score);
  ft_add_gradients(tensors, &params->score, launch->plan, kernel == FT_BACKWARD_CONVERT);
}

const struct ft_launch_family ft_mma_backward_launch = {
    .family = &ft_mma_backward_family,
    .entries = {[FT_BACKWARD_LIST] = FT_ENTRY_WORK_LIST,
                [FT_BACKWARD_PREPARE] = FT_ENTRY_PREPARE,
                [FT_BACKWARD_MAIN] = FT_ENTRY,
                [FT_BACKWARD_CONVERT] = FT_ENTRY_CONVERT},
    .kernel_count = FT_BACKWARD_KERNELS,
    .optional = 1u << FT_BACKWARD_LIST,
    .main = FT_BACKWARD_MAIN,
    .prepare = prepare,
    .workspace = workspace,
    .describe = describe};
