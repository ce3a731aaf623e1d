/* launch.c: one run of a plan: its arguments checked and turned into what the kernels read, by the
 * plan's family; its kernels launched.
 * in -> out: plan + fatune_arguments -> struct ft_launch -> kernels on a stream.
 * This is the hot path: no allocation, no lock, no call into the driver but the launches and what
 * tensor_maps.c has encoded. */
#include "runtime/launch.h"

#include "generator/status.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_families.h"
#include "runtime/mask.h"

/* Whoever tells how large the workspace is has it refused where the run needs a larger one. */
static int check_workspace(const struct ft_launch *launch, const fatune_arguments *arguments) {
  size_t bytes = 0;
  if (!arguments->workspace || arguments->workspace_size == 0) return FT_OK;
  if (launch->family->workspace) FT_TRY(launch->family->workspace(launch->plan, arguments, &bytes));
  if (bytes <= arguments->workspace_size) return FT_OK;
  return ft_fail(
      FT_E_ARGUMENT,
      "arguments.workspace_size is %zu; allowed: at least %zu bytes, which this run needs "
      "(fatune_plan_workspace_for), or 0 for not told",
      arguments->workspace_size, bytes);
}

int ft_launch_prepare(struct ft_launch *launch, const struct ft_launch_plan *plan,
                      const fatune_arguments *given) {
  fatune_arguments room;
  const fatune_arguments *arguments;
  FT_TRY(ft_arguments_read(&arguments, &room, given));
  launch->family = ft_launch_family_of(plan->config->family);
  launch->plan = plan;
  launch->mask = arguments->mask;
  FT_TRY(launch->family->prepare(launch, arguments));
  return check_workspace(launch, arguments);
}

int ft_launch_map_tensors(struct ft_launch *launch, const struct ft_driver *driver) {
  return launch->family->map_tensors ? launch->family->map_tensors(launch, driver) : FT_OK;
}

int ft_launch_workspace(const struct ft_launch_plan *plan, const fatune_arguments *given,
                        size_t *bytes) {
  const fatune_arguments of_request = FATUNE_ARGUMENTS_INIT;
  const struct ft_launch_family *const family = ft_launch_family_of(plan->config->family);
  fatune_arguments room;
  const fatune_arguments *arguments;
  *bytes = 0;
  FT_TRY(ft_arguments_read(&arguments, &room, given ? given : &of_request));
  if (family->workspace) return family->workspace(plan, arguments, bytes);
  return ft_run_read_extents(plan->request, arguments);
}

/* ---- launching ---- */

static int refused(const struct ft_driver *driver, cu_result result) {
  enum { INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
  const int status = ft_driver_status(driver, result, "cuLaunchKernel");
  if (result != INVALID_CONTEXT && result != INVALID_HANDLE) return status;
  return ft_fail_within(status, "is the session's context current in this thread, and the stream "
                                "one of that context?");
}

static void tell_emulator(const struct ft_launch *launch, int kernel) {
  struct ft_launch_tensors all;
  launch->family->describe(launch, kernel, &all);
  ft_add_lent_mask(&all, launch->mask);
  ft_emulator_expect(all.tensors, all.count);
}

/* By CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel begins when all blocks of
 * the kernel before it have called next_grid_may_begin (templates/parts/ptx_dependent.cu.in). */
static cu_result launch_early(const struct ft_driver *driver, cu_function function,
                              const struct ft_launch_kernel *kernel, cu_stream stream,
                              void **kernel_arguments) {
  enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
  struct cu_launch_attribute attribute = {.id = PROGRAMMATIC_STREAM_SERIALIZATION, .value = 1};
  const struct cu_launch_config config = {.grid = {kernel->grid, 1, 1},
                                          .block = {(unsigned)kernel->threads, 1, 1},
                                          .smem = (unsigned)kernel->smem_bytes,
                                          .stream = stream,
                                          .attributes = &attribute,
                                          .count = 1};
  return driver->launch_with(&config, function, kernel_arguments, NULL);
}

int ft_launch_enqueue(const struct ft_launch *launch, const struct ft_driver *driver,
                      const struct ft_module *module, cu_stream stream) {
  /* The driver copies the argument during the call, and only reads it. */
  void *kernel_arguments[] = {(void *)(uintptr_t)&launch->argument};
  for (int n = 0; n < launch->family->kernel_count; n++) {
    const struct ft_launch_kernel *const kernel = &launch->kernels[n];
    if (kernel->grid == 0) continue;
    if (driver->emulated) tell_emulator(launch, n);
    const cu_result result =
        kernel->early && driver->launches_early
            ? launch_early(driver, module->functions[n], kernel, stream, kernel_arguments)
            : driver->launch(module->functions[n], kernel->grid, 1, 1, (unsigned)kernel->threads, 1,
                             1, (unsigned)kernel->smem_bytes, stream, kernel_arguments, NULL);
    if (result) return refused(driver, result);
  }
  return FT_OK;
}
