/* budget.c: shared memory and registers of one candidate, by buffer and fragment.
 * in -> out: request + config + arch -> struct ft_budget, occupancy.
 * The kernel templates use the same figures, so a change here is a change of the kernels. */
#include "generator/budget.h"

#include "generator/visibility.h"

#include <stdbool.h>

static int min_int(int a, int b) {
  return a < b ? a : b;
}

static int max_int(int a, int b) {
  return a > b ? a : b;
}

static int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

/* Whether every knob is small enough that nothing below overflows; rules.c names the culprit. */
static bool within_range(const struct ft_config *config) {
  bool own = is_within(config->warps, 1, 32);
  if (config->family == FT_FAMILY_WGMMA) own = is_within(config->q_stages, 1, 2);
  if (config->family == FT_FAMILY_MMA_BACKWARD)
    own = own && is_within(config->column_warps, 1, 4) && is_within(config->query_parts, 1, 4);
  return own && is_within(config->block_m, 1, 512) && is_within(config->block_n, 1, 512) &&
         is_within(config->stages, 1, 8) && is_within(config->ctas_per_sm, 1, 32);
}

/* ---- mma ---- */

/* Bytes from row to row. The eight rows that ldmatrix reads at once must begin in eight different
 * groups of banks: rows of whole 128 bytes are swizzled by the kernel, others are made an odd
 * number of 16-byte chunks long. */
static int row_stride(int padded_dim) {
  return padded_dim % 64 == 0 ? 2 * padded_dim : (padded_dim / 8 | 1) * 16;
}

static void plan_shared_memory(struct ft_budget *budget, const struct ft_config *config) {
  budget->smem_q = config->block_m * budget->qk_stride;
  budget->smem_k = config->stages * config->block_n * budget->qk_stride;
  budget->smem_v = config->stages * config->block_n * budget->v_stride;
  budget->smem_o = config->block_m * budget->v_stride;
  const int keys = budget->smem_k + budget->smem_v;
  /* Q is read once into registers before the first K and V arrive, or stays beside them. */
  const int loop = config->q_in_regs ? max_int(budget->smem_q, keys) : budget->smem_q + keys;
  budget->smem_bytes = max_int(loop, budget->smem_o);
}

/* A warp holds a fragment of R x C values in 32 threads: fp32 takes R * C / 32 registers of each,
 * 16-bit types half of that. */
static void plan_registers(struct ft_budget *budget, const struct ft_config *config,
                           const struct ft_arch *arch) {
  enum { ADDRESSES_AND_STATISTICS = 40 }; /* pointers, loop state, row_max and row_sum */
  const int rows = budget->warp_rows;
  budget->regs_q = config->q_in_regs ? rows * budget->d_pad / 64 : 0;
  budget->regs_s = rows * config->block_n / 32 * (config->overlap_qk ? 2 : 1);
  budget->regs_p = rows * config->block_n / 64;
  budget->regs_o = rows * budget->dv_pad / 32;
  /* Without overlap P takes over the registers of S piece by piece. */
  budget->regs_estimate = budget->regs_q + budget->regs_o + budget->regs_s +
                          (config->overlap_qk ? budget->regs_p : 0) + ADDRESSES_AND_STATISTICS;
  const int share = arch->regs_per_sm / (budget->threads * config->ctas_per_sm);
  budget->regs_limit = min_int(255, share / 8 * 8);
}

static void plan_mma(struct ft_budget *budget, const struct ft_config *config,
                     const struct ft_arch *arch) {
  budget->threads = 32 * config->warps;
  budget->warp_rows = config->block_m / config->warps;
  budget->qk_stride = row_stride(budget->d_pad);
  budget->v_stride = row_stride(budget->dv_pad);
  plan_shared_memory(budget, config);
  plan_registers(budget, config, arch);
}

/* ---- wgmma ---- */

enum { WARPGROUP = 128, PANEL_COLUMNS = 64, PANEL_ROW = 128 };

/* Barriers | Q stages | K stages | V stages | P. O is staged in the place of its tile's Q. */
static void plan_panels(struct ft_budget *budget, const struct ft_config *config) {
  const int rows = config->block_m * PANEL_ROW, keys = config->stages * config->block_n * PANEL_ROW;
  budget->qk_stride = budget->v_stride = PANEL_ROW;
  budget->d_panels = round_up(budget->d_pad, PANEL_COLUMNS) / PANEL_COLUMNS;
  budget->dv_panels = round_up(budget->dv_pad, PANEL_COLUMNS) / PANEL_COLUMNS;
  budget->smem_barriers = 1024;
  budget->smem_q = config->q_stages * rows * max_int(budget->d_panels, budget->dv_panels);
  budget->smem_k = keys * budget->d_panels;
  budget->smem_v = keys * budget->dv_panels;
  budget->smem_o = rows * budget->dv_panels;
  const int p_panels = round_up(config->block_n, PANEL_COLUMNS) / PANEL_COLUMNS;
  budget->smem_p = config->p_in_smem ? config->block_m * PANEL_ROW * p_panels : 0;
  budget->smem_bytes =
      budget->smem_barriers + budget->smem_q + budget->smem_k + budget->smem_v + budget->smem_p;
}

/* A block begins with the same number of registers for each thread; the producer releases what the
 * consumers claim. setmaxnreg takes multiples of 8 from 24 on, and all together must not have more
 * than the block was given. */
static void share_registers(struct ft_budget *budget, const struct ft_arch *arch) {
  enum { PRODUCER_LEAST = 24, PRODUCER_MOST = 56, CONSUMER_MOST = 232 };
  const int consumers = budget->consumers;
  if (!is_within(consumers, 1, 4)) return; /* none to share, or too few for any tile */
  const int share = arch->regs_per_sm / budget->threads / 8 * 8;
  budget->launch_regs = min_int(CONSUMER_MOST, share);
  const int warpgroups = budget->launch_regs * (1 + consumers); /* all that the block is given */
  budget->consumer_regs = min_int(CONSUMER_MOST, (warpgroups - PRODUCER_LEAST) / consumers / 8 * 8);
  budget->producer_regs = min_int(PRODUCER_MOST, warpgroups - consumers * budget->consumer_regs);
}

/* The first rows of a tile see fewer keys than its last by as many as there are rows between. Under
 * a mask the steps are those of its blocks, for all rows. */
static int skipped_steps(const struct ft_request *request, const struct ft_config *config) {
  if (!ft_visibility_varies(request) || request->mask_rows > 0) return 0;
  return (config->block_m - 64 + config->block_n - 1) / config->block_n;
}

/* An accumulator of 64 x C values lies in 128 threads: C / 2 registers of each. */
static void plan_wgmma(struct ft_budget *budget, const struct ft_request *request,
                       const struct ft_config *config, const struct ft_arch *arch) {
  enum { ADDRESSES_AND_STATISTICS = 32 };
  budget->consumers = config->block_m / 64;
  budget->threads = WARPGROUP * (1 + budget->consumers);
  budget->warp_rows = 16;
  plan_panels(budget, config);
  share_registers(budget, arch);
  budget->regs_s = config->block_n / 2;
  budget->regs_p = config->block_n / 4;
  budget->regs_o = budget->dv_pad / 2;
  budget->regs_estimate = budget->regs_s + (config->p_in_smem ? 0 : budget->regs_p) +
                          budget->regs_o + ADDRESSES_AND_STATISTICS;
  budget->regs_limit = budget->consumer_regs;
  budget->skipped_steps = skipped_steps(request, config);
}

int ft_packed_heads(const struct ft_config *config, int group, int64_t seqlen_q) {
  enum { HEADS_MOST = 64 };
  int heads = 1;
  while (config->pack_gqa && group % (2 * heads) == 0 && 2 * heads <= HEADS_MOST &&
         seqlen_q <= INT32_MAX / (2 * heads))
    heads *= 2;
  return heads;
}

/* ---- mma_backward ---- */

/* Half of the warps sum dV up, the others dK; column_warps of each have the same keys. */
static void plan_roles(struct ft_budget *budget, const struct ft_config *config) {
  budget->threads = 32 * config->warps;
  budget->key_warps = config->warps / 2 / config->column_warps;
  budget->warp_keys = config->block_n / max_int(1, budget->key_warps);
  budget->warp_rows = budget->warp_keys;
  budget->part_queries = config->block_m / config->query_parts / config->column_warps;
}

/* dQ of a step, block_m x d, is shared out to all warps, so that rows and columns of a warp's
 * share, which it reads, are few. */
static int dq_rows_of(const struct ft_budget *budget, const struct ft_config *config) {
  int best = 0, least = 0;
  for (int rows = 16; rows <= config->block_m; rows *= 2) {
    const int row_warps = config->block_m / rows;
    if (config->block_m % rows != 0 || row_warps > config->warps) continue;
    const int column_warps = config->warps / row_warps;
    const int columns = round_up(budget->d_pad / 16, column_warps) / column_warps * 16;
    if (best != 0 && rows + columns >= least) continue;
    best = rows;
    least = rows + columns;
  }
  return best;
}

/* K | V | Q stages | dO stages | P | dS | LSE and D. */
static void plan_tiles(struct ft_budget *budget, const struct ft_config *config) {
  budget->qk_stride = row_stride(budget->d_pad);
  budget->v_stride = row_stride(budget->dv_pad);
  budget->p_stride = row_stride(config->block_m);
  budget->smem_k = config->block_n * budget->qk_stride;
  budget->smem_v = config->block_n * budget->v_stride;
  budget->smem_q = config->stages * config->block_m * budget->qk_stride;
  budget->smem_o = config->stages * config->block_m * budget->v_stride;
  budget->smem_p = config->block_n * budget->p_stride;
  budget->smem_ds = (config->deferred_dq ? 2 : 1) * budget->smem_p;
  budget->smem_stats = config->stages * config->block_m * 2 * 4;
  budget->smem_bytes = budget->smem_k + budget->smem_v + budget->smem_q + budget->smem_o +
                       budget->smem_p + budget->smem_ds + budget->smem_stats;
}

/* The last kernel: of sums in fp32 it makes dQ, a warp one block of 16 x 16 after the other; or it
 * has a warp for every 16 queries and walks over the keys. */
static void plan_dq(struct ft_budget *budget, const struct ft_request *request,
                    const struct ft_config *config) {
  enum { ORDERED_ADDS = 1 };
  budget->dq_smem = config->block_m * budget->qk_stride;
  budget->dq_threads = budget->threads;
  const bool ring = config->dq_mode == ORDERED_ADDS && !ft_visibility_varies(request);
  budget->dq_sums = config->dq_mode == 2 ? 0 : ring ? 2 : 1;
  if (config->dq_mode != 2) return;
  budget->dq_threads = 32 * max_int(1, config->block_m / 16);
  budget->dq_block_n = 64;
  while (budget->dq_block_n > 16 && config->block_n % budget->dq_block_n != 0)
    budget->dq_block_n -= 16;
  budget->dq_smem += config->block_m * budget->v_stride +
                     budget->dq_block_n * (budget->qk_stride + budget->v_stride);
}

static void plan_mma_backward(struct ft_budget *budget, const struct ft_request *request,
                              const struct ft_config *config, const struct ft_arch *arch) {
  enum { ADDRESSES = 40 };
  plan_roles(budget, config);
  plan_tiles(budget, config);
  plan_dq(budget, request, config);
  const int keys = budget->warp_keys, depth = max_int(budget->d_pad, budget->dv_pad);
  budget->dq_warp_rows = dq_rows_of(budget, config);
  budget->regs_dq = config->dq_mode == 2 ? 0 : config->block_m * budget->d_pad / budget->threads;
  budget->regs_q = config->kv_in_regs ? keys * depth / 64 : 0;
  budget->regs_s = keys * budget->part_queries / 32;
  budget->regs_p = keys * budget->part_queries / 64;
  budget->regs_o = keys * depth / 32 / config->column_warps;
  budget->regs_estimate =
      budget->regs_o + budget->regs_q + max_int(budget->regs_s, budget->regs_dq) + ADDRESSES;
  const int share = arch->regs_per_sm / (budget->threads * config->ctas_per_sm);
  budget->regs_limit = min_int(255, share / 8 * 8);
}

/* ---- all ---- */

struct ft_budget ft_budget_of(const struct ft_request *request, const struct ft_config *config,
                              const struct ft_arch *arch) {
  struct ft_budget budget = {0};
  if (!within_range(config)) return budget;
  budget.d_pad = round_up(request->head_dim, 16);
  budget.dv_pad = config->family == FT_FAMILY_WGMMA ? request->head_dim_v /* its n, by eight */
                                                    : round_up(request->head_dim_v, 16);
  switch (config->family) {
  case FT_FAMILY_MMA: plan_mma(&budget, config, arch); break;
  case FT_FAMILY_WGMMA: plan_wgmma(&budget, request, config, arch); break;
  case FT_FAMILY_MMA_BACKWARD: plan_mma_backward(&budget, request, config, arch); break;
  }
  return budget;
}

int ft_budget_occupancy(const struct ft_budget *budget, const struct ft_arch *arch, int registers) {
  enum { QUARTERS = 4, REGISTER_UNIT = 256 }; /* warps live in quarters of the multiprocessor */
  if (budget->threads < 1 || budget->threads > 1024) return 0;
  if (registers < 1 || registers > 255 || budget->smem_bytes > arch->smem_per_block) return 0;

  const int by_smem = arch->smem_per_sm / max_int(1, budget->smem_bytes + arch->smem_reserved);
  const int by_threads = arch->threads_per_sm / budget->threads;
  const int regs_per_warp = round_up(32 * registers, REGISTER_UNIT);
  const int warps = QUARTERS * (arch->regs_per_sm / QUARTERS / regs_per_warp);
  const int by_regs = warps / (budget->threads / 32);
  return min_int(min_int(by_smem, by_threads), min_int(by_regs, arch->blocks_per_sm));
}

int ft_budget_registers(const struct ft_budget *budget) {
  return budget->launch_regs > 0 ? budget->launch_regs
                                 : min_int(budget->regs_estimate, budget->regs_limit);
}
