/* quantise.c: the kernels that turn a tensor into e4m3 with descales.
 * in -> out: request -> budget. */
#include "generator/families/quantise.h"

#include <string.h>

#include "generator/families/own_kernel.h"

FT_DEFINE_TABLES(FT_QUANTISE_KNOBS, FT_QUANTISE_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { WITH_E4M3 = 89 };
  return arch->sm >= WITH_E4M3 && ft_dtype_bytes(request->dtype) == 2;
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  enum { WARP = 32, ROWS_OF_WARP = 16, COLUMNS = 512 };
  const int warps = ft_config_block_m(config);
  /* Blocks that together load some 128 KiB at a time keep the memory of an H200 busy. */
  const struct ft_quantise_budget own = {
      .rows = ROWS_OF_WARP * warps,
      .blocks = min_int(COLUMNS / request->head_dim, arch->threads_per_sm / (WARP * warps))};
  ft_plan_threads(budget, WARP * warps, arch);
  budget->regs_limit = budget->regs_estimate = ft_registers_for(arch, WARP * warps, 1);
  memcpy(budget->own, &own, sizeof own);
}

FT_OWN_KERNEL_FAMILY(quantise, serves);
