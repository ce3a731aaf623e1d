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

/* Lanes of a row, eight columns each: a power of two. */
static int lanes_of(int head_dim) {
  int lanes = 2;
  while (8 * lanes < head_dim) lanes *= 2;
  return lanes;
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const int threads = 32 * ft_config_block_m(config);
  const struct ft_quantise_budget own = {.rows = threads / lanes_of(request->head_dim) *
                                                 ft_quantise_knobs(config)->turns};
  ft_plan_threads(budget, threads, arch);
  memcpy(budget->own, &own, sizeof own);
}

FT_OWN_KERNEL_FAMILY(quantise, serves);
