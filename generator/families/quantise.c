/* quantise.c: the kernels that turn a tensor into e4m3 with descales.
 * in -> out: request -> budget. */
#include "generator/families/quantise.h"

#include <stdint.h>
#include <string.h>

#include "generator/families/own_kernel.h"

FT_DEFINE_TABLES(FT_QUANTISE_KNOBS, FT_QUANTISE_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { WITH_E4M3 = 89 };
  return arch->sm >= WITH_E4M3 && ft_dtype_bytes(request->dtype) == 2;
}

enum { WARP = 32, ROWS_OF_WARP = 16 };

/* Two blocks on a multiprocessor where their registers fit, so that one computes while the other
 * waits; up to 192 KiB in the rings of both. */
static void plan_ring(struct ft_quantise_budget *own, struct ft_budget *budget, int head_dim,
                      int warps, const struct ft_arch *arch) {
  enum { HALF_OF_REGISTERS = 128, RINGS_MOST = 192 * 1024 };
  const int task = own->rows * head_dim * (int)sizeof(uint16_t);
  const int largest = 2 * warps * (int)sizeof(float);
  own->blocks = head_dim <= HALF_OF_REGISTERS ? 2 : 1;
  const int room = arch->smem_per_sm / own->blocks - arch->smem_reserved - largest;
  own->stages = max_int(1, min_int(room, RINGS_MOST / own->blocks) / task);
  budget->smem_bytes = own->stages * task + largest;
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  enum { COLUMNS = 512 };
  const int warps = ft_config_block_m(config);
  /* Finders that together load some 128 KiB at a time keep the memory of an H200 busy. */
  struct ft_quantise_budget own = {
      .rows = ROWS_OF_WARP * warps,
      .finders = min_int(COLUMNS / request->head_dim, arch->threads_per_sm / (WARP * warps))};
  ft_plan_threads(budget, WARP * warps, arch);
  plan_ring(&own, budget, request->head_dim, warps, arch);
  budget->ctas_per_sm = own.blocks;
  budget->regs_limit = budget->regs_estimate = ft_registers_for(arch, WARP * warps, own.blocks);
  memcpy(budget->own, &own, sizeof own);
}

FT_OWN_KERNEL_FAMILY(quantise, serves);
