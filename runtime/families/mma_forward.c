/* mma_forward.c: the launch of the forward by mma.sync.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params and a block for each work tile. */
#include "runtime/families/mma_forward.h"

#include "generator/emit.h"
#include "generator/families/mma_forward.h"
#include "generator/schedule.h"
#include "generator/status.h"
#include "runtime/families/forward.h"
#include "runtime/families/ragged.h"

enum { LIST, MAIN, MERGE, KERNELS };

/* Whether walks are divided into parts whose number is chosen at the launch. */
static bool splits(const struct ft_launch_plan *plan) {
  const enum ft_schedule schedule = ft_schedule_of(plan->request, plan->config);
  return schedule == FT_SCHEDULE_SPLIT || schedule == FT_SCHEDULE_STREAM;
}

static struct ft_walks walks_of(const struct ft_launch_plan *plan) {
  struct ft_walks walks = {0};
  ft_mma_forward_walks(&walks, plan->request, plan->config, plan->budget, plan->arch);
  return walks;
}

/* With K and V in e4m3 their factors stand before it, and those of Q where it is, too. */
static bool is_descaled(const struct ft_launch_plan *plan) {
  return ft_kv_dtype(plan->request) == FT_E4M3;
}

static struct ft_forward_params *params_of(struct ft_launch *launch) {
  return is_descaled(launch->plan) ? &launch->argument.descaled_mma_forward.rest
                                   : &launch->argument.forward;
}

/* The kernel moves bytes of e4m3 in pairs. */
static void count_in_halves(struct ft_forward_params *params, const struct ft_request *request) {
  const int bytes = ft_dtype_bytes(FT_E4M3);
  if (request->dtype == FT_E4M3) ft_tensor_count_in_halves(&params->q, bytes);
  ft_tensor_count_in_halves(&params->k, bytes);
  ft_tensor_count_in_halves(&params->v, bytes);
}

static int read_descales(struct ft_launch *launch, const fatune_arguments *arguments) {
  struct ft_arg_descales *const descales = &launch->argument.descaled_mma_forward.descales;
  return launch->plan->request->dtype == FT_E4M3 ? ft_run_read_descales(descales, arguments)
                                                 : ft_run_read_kv_descales(descales, arguments);
}

static int prepare(struct ft_launch *launch, const fatune_arguments *arguments) {
  const struct ft_launch_plan *const plan = launch->plan;
  struct ft_forward_params *const params = params_of(launch);
  struct ft_run run;
  int64_t tiles;
  FT_TRY(ft_run_read(&run, plan->request, arguments));
  FT_TRY(ft_forward_prepare(params, plan, &run, arguments, ft_forward_pack(plan, &run, arguments),
                            &tiles));
  if (is_descaled(plan)) {
    count_in_halves(params, plan->request);
    FT_TRY(read_descales(launch, arguments));
  }
  int64_t blocks = tiles;
  launch->kernels[LIST] = ft_ragged_list(&params->ragged);
  launch->kernels[MERGE] = (struct ft_launch_kernel){0};
  if (splits(plan)) {
    struct ft_walks walks = walks_of(plan);
    FT_TRY(ft_forward_divide(params, plan, &run, arguments, &walks, &blocks));
    launch->kernels[MERGE] = ft_forward_merge(params, plan, tiles);
  }
  FT_TRY(ft_forward_clusters(plan, ft_mma_forward_knobs(plan->config)->split_keys, &blocks));
  launch->kernels[MAIN] = (struct ft_launch_kernel){.grid = (unsigned)blocks,
                                                    .threads = plan->budget->threads,
                                                    .smem_bytes = plan->budget->smem_bytes};
  return FT_OK;
}

static int workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                     size_t *bytes) {
  if (!splits(plan)) return ft_forward_list_bytes(plan, arguments, bytes);
  struct ft_walks walks = walks_of(plan);
  return ft_forward_workspace(plan, arguments, &walks, bytes);
}

static void describe(const struct ft_launch *launch, int kernel,
                     struct ft_launch_tensors *tensors) {
  const bool descaled = is_descaled(launch->plan);
  const struct ft_forward_params *const params =
      descaled ? &launch->argument.descaled_mma_forward.rest : &launch->argument.forward;
  ft_forward_describe(params, launch->plan, kernel == LIST, descaled, tensors);
  if (descaled)
    ft_forward_describe_descales(&launch->argument.descaled_mma_forward.descales,
                                 params->sequence.batch, launch->plan->request->descale_rows,
                                 tensors);
  if (splits(launch->plan))
    ft_forward_describe_parts(params, launch->plan->request->head_dim_v, kernel == MAIN, tensors);
}

const struct ft_launch_family ft_mma_forward_launch = {
    .family = &ft_mma_forward_family,
    .entries = {[LIST] = FT_ENTRY_WORK_LIST, [MAIN] = FT_ENTRY, [MERGE] = FT_ENTRY_MERGE},
    .kernel_count = KERNELS,
    .optional = 1u << LIST | 1u << MERGE,
    .main = MAIN,
    .prepare = prepare,
    .workspace = workspace,
    .describe = describe};
