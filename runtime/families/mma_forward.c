/* mma_forward.c: the launch of the forward by mma.sync.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params and a block for each work tile. */
#include "runtime/families/mma_forward.h"

#include "generator/emit.h"
#include "generator/families/mma_forward.h"
#include "generator/status.h"
#include "runtime/families/forward.h"

static int prepare(struct ft_launch *launch, const fatune_arguments *arguments) {
  const struct ft_launch_plan *const plan = launch->plan;
  struct ft_run run;
  int64_t blocks;
  FT_TRY(ft_run_read(&run, plan->request, arguments));
  FT_TRY(ft_forward_prepare(&launch->argument.forward, plan, &run, arguments, 1, &blocks));
  launch->kernels[0] = (struct ft_launch_kernel){.grid = (unsigned)blocks,
                                                 .threads = plan->budget->threads,
                                                 .smem_bytes = plan->budget->smem_bytes};
  return FT_OK;
}

static void describe(const struct ft_launch *launch, int kernel,
                     struct ft_launch_tensors *tensors) {
  (void)kernel; /* there is one */
  ft_forward_describe(&launch->argument.forward, launch->plan, tensors);
}

const struct ft_launch_family ft_mma_forward_launch = {.family = &ft_mma_forward_family,
                                                       .entries = {FT_ENTRY},
                                                       .kernel_count = 1,
                                                       .prepare = prepare,
                                                       .describe = describe};
