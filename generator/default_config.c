/* default_config.c: the hand-written prior, trial number 0 of every search.
 * in -> out: request + arch -> a legal config, by a table of favourites and a ladder below it.
 * A pure function: equal requests get equal defaults on equal GPUs, now and later. */
#include <stddef.h>

#include "generator/space.h"
#include "generator/status.h"

/* Best first; a row counts when max(d, dv) is at most `head_dim`, and with dropout or without it
 * where it says so. */
struct favourite {
  int head_dim;
  enum when { ALWAYS, PLAIN, DROPOUT } when;
  struct ft_config config;
};

/* Bigger heads need more registers for O, so rows per warp shrink; the rows below a GPU's limits in
 * shared memory come later. */
static const struct favourite mma_favourites[] = {
#define ROW(dim, m, n, w, s, q, c)                                                                 \
  {                                                                                                \
    dim, ALWAYS, {                                                                                 \
      .family = FT_FAMILY_MMA, .block_m = m, .block_n = n, .warps = w, .stages = s,                \
      .q_in_regs = q, .overlap_qk = 0, .ctas_per_sm = c                                            \
    }                                                                                              \
  }
    ROW(64, 128, 64, 4, 2, 0, 2),  ROW(64, 128, 64, 4, 2, 1, 2), /* sm_86, sm_89: Q makes room for a
                                                                     second block */
    ROW(64, 128, 64, 4, 1, 0, 1),                                /* sm_75 */
    ROW(128, 128, 64, 4, 2, 0, 2), ROW(128, 128, 32, 4, 2, 0, 2), ROW(128, 128, 32, 4, 2, 0, 1),
    ROW(128, 64, 64, 4, 2, 0, 2), /* masks of 64 rows, short queries */
    ROW(128, 64, 32, 4, 2, 0, 2),  ROW(128, 64, 64, 4, 1, 0, 1),  ROW(256, 64, 64, 4, 1, 0, 2),
    ROW(256, 128, 64, 8, 2, 0, 1), ROW(256, 64, 32, 4, 2, 0, 1),  ROW(256, 64, 32, 4, 1, 0, 1),
    ROW(256, 64, 32, 4, 1, 1, 1), /* sm_75 */
#undef ROW
};

/* What was fastest most often on an H200, full and causal, n = 1024 to 16384 (bench/ledger.md).
 * Tiles that overlap, and with them warpgroups that pingpong, pay where exp2 and dropout outweigh
 * the products. With one stage of Q O goes to global memory straight from registers, so that the
 * end of a tile does not wait for the next one's Q. Dropout draws the bits of 64 columns at once
 * and tiles of other widths draw them twice or four times. */
static const struct favourite wgmma_favourites[] = {
#define ROW(dim, m, n, s, q, overlap, smem, direct, when)                                          \
  {                                                                                                \
    dim, when, {                                                                                   \
      .family = FT_FAMILY_WGMMA, .block_m = m, .block_n = n, .stages = s, .q_stages = q,           \
      .overlap_tiles = overlap, .pingpong = overlap && m > 64, .integer_max = 1,                   \
      .lazy_rescale = 1, .p_in_smem = smem, .direct_store = direct, .ctas_per_sm = 1               \
    }                                                                                              \
  }
    ROW(64, 256, 64, 4, 2, 1, 0, 1, ALWAYS),    ROW(64, 192, 128, 2, 2, 1, 0, 1, ALWAYS),
    ROW(72, 256, 64, 3, 2, 0, 0, 0, ALWAYS),    ROW(80, 256, 80, 2, 1, 0, 1, 1, PLAIN),
    ROW(80, 128, 128, 2, 2, 1, 0, 0, ALWAYS), /* masks of 128 rows, too */
    ROW(128, 128, 128, 2, 2, 1, 0, 0, DROPOUT), ROW(128, 128, 128, 2, 2, 0, 0, 0, PLAIN),
    ROW(160, 128, 80, 2, 2, 0, 0, 0, PLAIN),    ROW(192, 128, 64, 2, 2, 0, 0, 0, ALWAYS),
    ROW(128, 64, 128, 2, 2, 1, 0, 0, ALWAYS), /* short queries, masks of 64 rows */
    ROW(256, 128, 64, 2, 1, 0, 0, 1, ALWAYS),   ROW(256, 64, 64, 2, 1, 1, 0, 1, ALWAYS),
#undef ROW
};

/* Key blocks whose dK and dV fit the registers; the rows below a GPU's limits come later. */
static const struct favourite backward_favourites[] = {
#define ROW(dim, m, n, w, s, columns, part, regs, late)                                            \
  {                                                                                                \
    dim, ALWAYS, {                                                                                 \
      .family = FT_FAMILY_MMA_BACKWARD, .block_m = m, .block_n = n, .warps = w, .stages = s,       \
      .column_warps = columns, .query_parts = part, .kv_in_regs = regs, .deferred_dq = late,       \
      .ctas_per_sm = 1                                                                             \
    }                                                                                              \
  }
    ROW(64, 128, 128, 8, 2, 1, 2, 1, 1), ROW(64, 64, 128, 8, 2, 1, 1, 1, 0), /* sm_86, sm_89 */
    ROW(64, 64, 64, 8, 2, 1, 1, 1, 1), /* masks of 64 columns */
    ROW(64, 64, 64, 8, 1, 1, 1, 0, 0), /* sm_75 */
    ROW(128, 64, 128, 8, 2, 1, 1, 0, 1), ROW(128, 64, 128, 8, 2, 1, 1, 0, 0), /* sm_80 */
    ROW(128, 64, 64, 8, 2, 2, 1, 0, 1), /* masks of 64 columns */
    ROW(128, 32, 64, 8, 2, 1, 1, 0, 1), /* sm_86, sm_89 */
    ROW(128, 32, 64, 8, 1, 1, 1, 0, 0), /* sm_75 */
    ROW(256, 64, 64, 8, 2, 2, 1, 0, 1),  ROW(256, 64, 64, 8, 1, 2, 1, 0, 0), /* sm_80 */
    ROW(256, 32, 32, 8, 1, 2, 1, 0, 0),                                      /* sm_86, sm_89 */
    ROW(256, 16, 32, 4, 1, 1, 1, 0, 0),                                      /* sm_75 */
#undef ROW
};

static bool take_favourite(const struct favourite *favourites, size_t count,
                           const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  const int head_dim =
      request->head_dim > request->head_dim_v ? request->head_dim : request->head_dim_v;
  const enum when other = request->dropout ? PLAIN : DROPOUT;
  for (size_t i = 0; i < count; ++i) {
    if (favourites[i].head_dim < head_dim || favourites[i].when == other) continue;
    *config = favourites[i].config;
    if (request->deterministic) config->dq_mode = request->mask_rows == 0 ? 1 : 2;
    if (config->dq_mode == 2) config->deferred_dq = 0;
    if (ft_rules_broken(request, arch, config) == NULL) return true;
  }
  return false;
}

/* The rules allow a little more than the estimate: for the search to find out, not for a default.
 */
static bool registers_suffice(const struct ft_request *request, const struct ft_arch *arch,
                              const struct ft_config *config) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  return budget.regs_estimate <= budget.regs_limit;
}

/* wgmma under fine masks: the largest tile that divides the mask's blocks. May find none. */
static bool climb_down_wgmma(const struct ft_request *request, const struct ft_arch *arch,
                             struct ft_config *config) {
  static const int rows[] = {128, 192, 64};
  for (size_t m = 0; m < sizeof rows / sizeof rows[0]; ++m)
    for (int columns = 192; columns >= 64; columns -= 16)
      for (int q_stages = 2; q_stages >= 1; --q_stages) {
        *config = (struct ft_config){.family = FT_FAMILY_WGMMA,
                                     .block_m = rows[m],
                                     .block_n = columns,
                                     .stages = 2,
                                     .q_stages = q_stages,
                                     .overlap_tiles = 1,
                                     .lazy_rescale = 1,
                                     .direct_store = q_stages == 1,
                                     .ctas_per_sm = 1};
        if (registers_suffice(request, arch, config) &&
            ft_rules_broken(request, arch, config) == NULL)
          return true;
      }
  return false;
}

/* For what is left (fine masks, short queries, small shared memory): one warp per 16 rows, which
 * always fits the registers, the largest tile first. */
static bool climb_down_mma(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  static const int rows[] = {64, 32, 16}, columns[] = {64, 32, 48, 16};
  for (size_t m = 0; m < sizeof rows / sizeof rows[0]; ++m)
    for (size_t n = 0; n < sizeof columns / sizeof columns[0]; ++n)
      for (int stages = arch->sm >= 80 ? 2 : 1; stages >= 1; --stages) {
        *config = (struct ft_config){.family = FT_FAMILY_MMA,
                                     .block_m = rows[m],
                                     .block_n = columns[n],
                                     .warps = rows[m] / 16,
                                     .stages = stages,
                                     .ctas_per_sm = 1};
        if (ft_rules_broken(request, arch, config) == NULL) return true;
      }
  return false;
}

/* Gradients for what is left: the largest tile, 16 keys for a warp. */
static bool climb_down_backward(const struct ft_request *request, const struct ft_arch *arch,
                                struct ft_config *config) {
  static const int sizes[] = {64, 32, 16};
  enum { SIZES = sizeof sizes / sizeof sizes[0] };
  for (int size = 0; size < SIZES * SIZES; ++size)
    for (int columns = 2; columns >= 1; --columns)
      for (int stages = arch->sm >= 80 ? 2 : 1; stages >= 1; --stages) {
        const int keys = sizes[size % SIZES];
        *config = (struct ft_config){.family = FT_FAMILY_MMA_BACKWARD,
                                     .block_m = sizes[size / SIZES],
                                     .block_n = keys,
                                     .warps = keys / 16 * 2 * columns,
                                     .stages = stages,
                                     .column_warps = columns,
                                     .query_parts = 1,
                                     .ctas_per_sm = 1};
        if (request->deterministic) config->dq_mode = request->mask_rows == 0 ? 1 : 2;
        if (ft_rules_broken(request, arch, config) == NULL) return true;
      }
  return false;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool default_wgmma(const struct ft_request *request, const struct ft_arch *arch,
                          struct ft_config *config) {
  return ft_family_serves(FT_FAMILY_WGMMA, request, arch) &&
         (take_favourite(wgmma_favourites, COUNT(wgmma_favourites), request, arch, config) ||
          climb_down_wgmma(request, arch, config));
}

static bool default_mma(const struct ft_request *request, const struct ft_arch *arch,
                        struct ft_config *config) {
  return ft_family_serves(FT_FAMILY_MMA, request, arch) &&
         (take_favourite(mma_favourites, COUNT(mma_favourites), request, arch, config) ||
          climb_down_mma(request, arch, config));
}

static bool default_backward(const struct ft_request *request, const struct ft_arch *arch,
                             struct ft_config *config) {
  return ft_family_serves(FT_FAMILY_MMA_BACKWARD, request, arch) &&
         (take_favourite(backward_favourites, COUNT(backward_favourites), request, arch, config) ||
          climb_down_backward(request, arch, config));
}

int ft_default_config(const struct ft_request *request, const struct ft_arch *arch,
                      struct ft_config *config) {
  FT_TRY(ft_rules_serves(request, arch));
  if (default_wgmma(request, arch, config) || default_mma(request, arch, config) ||
      default_backward(request, arch, config))
    return FT_OK;
  return ft_fail(FT_E_UNSUPPORTED, "no config is legal on %s, not even %d x %d with one warp",
                 arch->name, config->block_m, config->block_n);
}
