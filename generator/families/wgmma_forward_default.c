/* wgmma_forward_default.c: the default config of the forward by wgmma.
 * in -> out: request + arch -> config. */
#include <math.h>

#include "generator/families/mma_forward.h"
#include "generator/families/plan.h"
#include "generator/families/wgmma_forward.h"
#include "generator/score/kind.h"
#include "generator/visibility.h"

enum { WARPGROUP_ROWS = 64 };

/* Best first: what was fastest most often on an H200, full and causal, n = 1024 to 16384
 * (bench/ledger.md). Tiles that overlap, and with them warpgroups that take turns, pay where exp2
 * and dropout outweigh the products. With one stage of Q, O goes to global memory straight from
 * registers, so that the end of a tile does not wait for the next one's Q. Dropout draws the bits
 * of 64 columns at once; tiles of other widths draw them twice or four times. A score function
 * takes the row of dropout at d128, where it was as fast as the plain one with ALiBi, 0.95 of it
 * with softcap and 1.16 with a learnt bias, and ptxas spills less. At d64 tiles of 192 rows are 2 %
 * faster with ALiBi and 1 % with softcap, but tiles of 256 rows where these are causal and for
 * functions of no kind of their own; of many instructions, tiles of 64 keys at d128, too. A soft
 * cap at d128, not causal, is faster by three warpgroups. With dense bias and steps of 128 keys
 * three consumers have too few registers. A bias of keys is added by the products. */
struct favourite {
  struct ft_favoured of;
  struct ft_wgmma_forward_knobs knobs; /* and what all have, see take_favourite */
};

static const struct favourite favourites[] = {
    {{2, 64, FT_SCORED_FULL, FT_SCORE_TILE},
     {TILE(192, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .pingpong = 2,
      .direct_store = 1}},
    {{2, 64, FT_SCORED, FT_SCORE_TILE},
     {TILE(128, 128), .stages = 3, .q_stages = 2, .overlap_tiles = 1, .pingpong = 2,
      .direct_store = 1}},
    {{2, 64, FT_SCORED_FULL, FT_SCORE_SIDES},
     {TILE(192, 128), .stages = 3, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {{2, 64, FT_SCORED_CAUSAL, FT_SCORE_SIDES},
     {TILE(256, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {{2, 64, FT_SCORED_CAUSAL, FT_SCORE_SIGMOID},
     {TILE(256, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .pingpong = 2,
      .direct_store = 1}},
    {{2, 64, FT_SCORED_FULL, FT_SCORE_DISTANCE},
     {TILE(192, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .pingpong = 2,
      .direct_store = 1}},
    {{2, 64, FT_SCORED, FT_SCORE_EACH},
     {TILE(256, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {{2, 64, FT_SCORED, FT_SCORE_LONG},
     {TILE(256, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {FT_FAVOURED(2, 64, FT_SCORED),
     {TILE(192, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    /* In windows of few keys a tile's walk is so short that turns cost more than they hide. */
    {FT_FAVOURED(2, 64, FT_PLAIN_FEW_SEEN),
     {TILE(192, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(256, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(192, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {FT_FAVOURED(2, 72, FT_ALWAYS), {TILE(256, 64), .stages = 3, .q_stages = 2}},
    {FT_FAVOURED(2, 80, FT_PLAIN),
     {TILE(256, 80), .stages = 2, .q_stages = 1, .p_in_smem = 1, .direct_store = 1}},
    /* Masks of 128 rows, too. */
    {FT_FAVOURED(2, 80, FT_ALWAYS),
     {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1}},
    {{2, 128, FT_SCORED, FT_SCORE_TILE},
     {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .pingpong = 2}},
    {{2, 128, FT_SCORED_FULL, FT_SCORE_DISTANCE},
     {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .pingpong = 2}},
    {{2, 128, FT_SCORED_FULL, FT_SCORE_SIGMOID},
     {TILE(192, 80), .stages = 3, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {{2, 128, FT_SCORED, FT_SCORE_LONG},
     {TILE(128, 64), .stages = 3, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    {{2, 128, FT_SCORED_FULL, FT_SCORE_KEYS}, {TILE(128, 128), .stages = 2, .q_stages = 2}},
    {FT_FAVOURED(2, 128, FT_BUSY),
     {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1}},
    /* A walk of four steps or fewer: the products of the next tile hide the end of this one. */
    {FT_FAVOURED(2, 128, FT_PLAIN_SHORT),
     {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .direct_store = 1}},
    /* Most steps of documents of all lengths are the longest ones'. */
    {FT_FAVOURED(2, 128, FT_PLAIN_PACKED), {TILE(128, 128), .stages = 2, .q_stages = 2}},
    /* In narrow windows and short sequences much of a step may be hidden: steps of fewer keys. */
    {FT_FAVOURED(2, 128, FT_PLAIN_NARROW), {TILE(192, 64), .stages = 3, .q_stages = 2}},
    {FT_FAVOURED(2, 128, FT_PLAIN), {TILE(128, 128), .stages = 2, .q_stages = 2}},
    {FT_FAVOURED(2, 160, FT_PLAIN), {TILE(128, 80), .stages = 2, .q_stages = 2}},
    {FT_FAVOURED(2, 192, FT_ALWAYS), {TILE(128, 64), .stages = 2, .q_stages = 2}},
    /* Short queries, masks of 64 rows. */
    {FT_FAVOURED(2, 128, FT_ALWAYS),
     {TILE(64, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(128, 64), .stages = 2, .q_stages = 1, .direct_store = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(64, 64), .stages = 2, .q_stages = 1, .overlap_tiles = 1, .direct_store = 1}},
    /* Of e4m3, whose P takes half the registers. Here each row says whether warpgroups take turns
     * (pingpong): tiles of 192 rows of d128 are faster without. With a score these are the largest
     * tiles whose registers ptxas does not spill. */
    {FT_FAVOURED(1, 64, FT_SCORED),
     {TILE(192, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 128, FT_SCORED),
     {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 256, FT_SCORED), {TILE(128, 64), .stages = 2, .q_stages = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 64, FT_VARIED),
     {TILE(256, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1}},
    {FT_FAVOURED(1, 64, FT_ALWAYS),
     {TILE(256, 64), .stages = 4, .q_stages = 2, .overlap_tiles = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 64, FT_ALWAYS),
     {TILE(128, 192), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 128, FT_ALWAYS),
     {TILE(192, 96), .stages = 3, .q_stages = 2, .overlap_tiles = 1}},
    {FT_FAVOURED(1, 128, FT_ALWAYS), {TILE(128, 192), .stages = 2, .q_stages = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 192, FT_PLAIN_NARROW),
     {TILE(128, 64), .stages = 3, .q_stages = 2, .overlap_tiles = 1}},
    {FT_FAVOURED(1, 192, FT_ALWAYS), {TILE(128, 128), .stages = 2, .q_stages = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 256, FT_PLAIN),
     {TILE(128, 96), .stages = 2, .q_stages = 2, .overlap_tiles = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(128, 96), .stages = 2, .q_stages = 1, .pingpong = 1}},
    /* Masks of 128 columns or of 64, short queries. */
    {FT_FAVOURED(1, 128, FT_ALWAYS),
     {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(128, 64), .stages = 2, .q_stages = 1, .pingpong = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 128), .stages = 2, .q_stages = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 64), .stages = 2, .q_stages = 1}},
};

/* Whether the products had better add what a score has of each key. For ALiBi they do so as fast as
 * an addition for each element, and then steps far from the query, whose P are 0, are shorter. Of
 * few keys few are far. */
static bool adds_keys(const struct ft_request *request) {
  enum { FEW_KEYS = 2048 };
  const enum ft_score_kind kind = ft_score_kind_of(request->score);
  const bool few = request->seqlen_k > 0 && request->seqlen_k <= FEW_KEYS;
  return kind == FT_SCORE_KEYS ||
         (kind == FT_SCORE_SIDES && !few && !ft_visibility_varies(request));
}

static bool take_favourite(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  const bool e4m3 = request->dtype == FT_E4M3;
  for (int i = 0; i < FT_COUNT(favourites); ++i) {
    if (!ft_favourite_counts(favourites[i].of, request)) continue;
    struct ft_wgmma_forward_knobs knobs_of = favourites[i].knobs;
    if (!e4m3 && knobs_of.pingpong == 0)
      knobs_of.pingpong = knobs_of.overlap_tiles && knobs_of.block_m > WARPGROUP_ROWS &&
                          !ft_blocks_are_partial(request) &&
                          favourites[i].of.when != FT_PLAIN_FEW_SEEN;
    if (!e4m3 && ft_score_kind_of(request->score) == FT_SCORE_TILE)
      knobs_of.score_in_smem = knobs_of.block_n % 64 == 0 ? 2 : 1;
    knobs_of.direct_store |= e4m3 || ft_outputs_are_wide(request);
    if (ft_outputs_are_wide(request) && !knobs_of.overlap_tiles) knobs_of.q_stages = 1;
    knobs_of.integer_max = knobs_of.lazy_rescale = 1;
    /* Where it is legal, and there is room. */
    knobs_of.keys_in_product = adds_keys(request);
    for (; knobs_of.keys_in_product >= 0; --knobs_of.keys_in_product) {
      *config = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
      if (ft_config_is_legal(config, request, arch)) return true;
    }
  }
  return false;
}

/* Fine masks: the largest tile that divides the mask's blocks. May find none. */
static bool climb_down(const struct ft_request *request, const struct ft_arch *arch,
                       struct ft_config *config) {
  static const int rows[] = {128, 192, 64};
  for (int m = 0; m < FT_COUNT(rows); ++m)
    for (int columns = 192; columns >= (request->dtype == FT_E4M3 ? 32 : 64); columns -= 16)
      for (int q_stages = 2; q_stages >= 1; --q_stages) {
        *config = FT_CONFIG(wgmma_forward, .block_m = rows[m], .block_n = columns, .stages = 2,
                            .q_stages = q_stages, .overlap_tiles = 1, .lazy_rescale = 1,
                            .direct_store = q_stages == 1 || ft_outputs_are_wide(request));
        if (ft_wgmma_forward_fits(request, arch, config)) return true;
      }
  return false;
}

/* Scores that tiles compute for a head, with those beyond its last query and its last key. */
static double scores_of(const struct ft_request *request, int block_m, int block_n) {
  const int64_t rows = (request->seqlen_q + block_m - 1) / block_m * block_m;
  const int64_t columns = (request->seqlen_k + block_n - 1) / block_n * block_n;
  return (double)rows * (double)columns;
}

static struct ft_config tight_tile(bool taking_turns, int block_m, int block_n, int stages) {
  return FT_CONFIG(wgmma_forward, .block_m = block_m, .block_n = block_n, .stages = stages,
                   .q_stages = 2, .overlap_tiles = 1, .pingpong = taking_turns, .integer_max = 1,
                   .lazy_rescale = 1, .direct_store = 1);
}

/* Of short sequences half of a tile may lie beyond the last query or key. Takes a tile that
 * computes clearly fewer scores than *config; of equals the one with most keys. */
static void fit_short(const struct ft_request *request, const struct ft_arch *arch,
                      struct ft_config *config) {
  enum { SHORT = 1024, COLUMNS = 128 };
  static const struct {
    int rows;
    double share; /* of the scores, at most: in tiles of fewer rows a score takes more time */
  } tiles[] = {{192, 0.88}, {128, 0.8}};
  static const double SAME_ROWS = 0.95;
  const bool taking_turns =
      request->dtype == FT_E4M3 || max_int(request->head_dim, request->head_dim_v) <= 64;
  if (request->seqlen_q < WARPGROUP_ROWS || request->seqlen_q > SHORT || request->seqlen_k > SHORT)
    return;
  const int present = ft_config_block_m(config);
  const double scores = scores_of(request, present, ft_config_block_n(config));
  double least = 1;
  for (int m = 0; m < FT_COUNT(tiles); ++m)
    for (int columns = COLUMNS; columns >= 64; columns -= 16)
      for (int stages = 3; stages >= 2; --stages) {
        const int rows = tiles[m].rows;
        const struct ft_config tight = tight_tile(taking_turns, rows, columns, stages);
        const double share = scores_of(request, rows, columns) / scores;
        if (share >= least || share > (rows == present ? SAME_ROWS : tiles[m].share) ||
            !ft_wgmma_forward_fits(request, arch, &tight))
          continue;
        least = share;
        *config = tight;
      }
}

/* Tiles of 128 x 128 of d128 are the fastest, and those of 192 x 64 next: where they compute fewer
 * scores beyond the end they are taken. */
static void fit_end(const struct ft_request *request, const struct ft_arch *arch,
                    struct ft_config *config) {
  enum { SQUARE = 128, ROWS = 192, COLUMNS = 64, SHORT = 512 };
  static const double FEWER = 0.95;
  if (request->dtype == FT_E4M3 || request->seqlen_k <= SHORT ||
      max_int(request->head_dim, request->head_dim_v) <= 80 ||
      ft_config_block_m(config) != SQUARE || ft_config_block_n(config) != SQUARE ||
      scores_of(request, ROWS, COLUMNS) > FEWER * scores_of(request, SQUARE, SQUARE))
    return;
  const bool wide = ft_outputs_are_wide(request);
  const struct ft_config other = FT_CONFIG(wgmma_forward, .block_m = ROWS, .block_n = COLUMNS,
                                           .stages = 3, .q_stages = wide ? 1 : 2, .integer_max = 1,
                                           .lazy_rescale = 1, .direct_store = wide);
  if (ft_config_is_legal(&other, request, arch)) *config = other;
}

/* Of up to 1024 keys of e4m3 and d128 a square tile has fewer steps that rows see in part. */
static void fit_square(const struct ft_request *request, const struct ft_arch *arch,
                       struct ft_config *config) {
  enum { LONG = 1024, SIDE = 128, STAGES = 3 };
  const struct ft_config square = tight_tile(false, SIDE, SIDE, STAGES);
  if (request->dtype == FT_E4M3 && max_int(request->head_dim, request->head_dim_v) > 96 &&
      request->seqlen_k <= LONG && ft_wgmma_forward_fits(request, arch, &square))
    *config = square;
}

/* Tiles by the lengths, where every query may see every key but for causality. With dropout they
 * were measured for head dims up to 64 alone. */
static void fit_lengths(const struct ft_request *request, const struct ft_arch *arch,
                        struct ft_config *config) {
  const int head_dim = max_int(request->head_dim, request->head_dim_v);
  if (!ft_heads_are_plain(request) || head_dim > (request->dropout ? 64 : 128) ||
      request->seqlen_q == 0 || request->seqlen_k == 0)
    return;
  fit_end(request, arch, config);
  fit_square(request, arch, config);
  fit_short(request, arch, config);
}

/* For few rows: heads that share K and V share tiles where they can, the ring of K and V is deep,
 * and the keys may be divided up among blocks. Best first. */
static const struct {
  int head_dim; /* max(d, dv) is at most this */
  struct ft_wgmma_forward_knobs knobs;
} of_few_rows[] = {
    {64, {TILE(64, 128), .stages = 3, .q_stages = 1, .direct_store = 1}},
    {64, {TILE(128, 128), .stages = 3, .q_stages = 1, .overlap_tiles = 1, .direct_store = 1}},
    {128, {TILE(64, 128), .stages = 3, .q_stages = 1, .direct_store = 1}},
    {128, {TILE(128, 128), .stages = 2, .q_stages = 1, .direct_store = 1}},
    {256, {TILE(64, 64), .stages = 3, .q_stages = 1, .direct_store = 1}},
    {256, {TILE(64, 64), .stages = 2, .q_stages = 1, .direct_store = 1}},
};

/* A division that was estimated to win less lost time on an H200. */
static const double DIVIDED = 1.25;

/* Of a step, whose two products and softmax wait for each other: a block of one warpgroup computed
 * 5.5 scores a clock on an H200, of more about 8. */
static double softmax_us(const struct ft_arch *arch, const struct ft_config *config) {
  static const double ALONE = 5.5, MORE = 8;
  const int block_m = ft_config_block_m(config);
  const double scores = (double)block_m * ft_config_block_n(config);
  const double clock = arch->clock_ghz > 0 ? arch->clock_ghz : 1.5;
  return scores / (block_m > WARPGROUP_ROWS ? MORE : ALONE) / clock / 1e3;
}

/* Microseconds, estimated, of a config for a request with lengths, and its work tiles. Of configs
 * that load for as long, the one with less to compute takes less. */
static double estimate(const struct ft_request *request, const struct ft_arch *arch,
                       const struct ft_config *config, int64_t *tiles) {
  static const double BESIDE = 1e-3;
  const struct ft_walks walks = ft_wgmma_forward_walks_of(request, config, arch);
  *tiles = walks.tiles;
  const struct ft_wgmma_forward_knobs *const knobs_of = ft_wgmma_forward_knobs(config);
  const struct ft_key_parts parts =
      knobs_of->split_keys ? ft_key_parts_of(&walks, arch) : ft_key_parts_divided(&walks, arch, 1);
  const int64_t slots = max_int(1, arch->sm_count);
  const int64_t rounds = walks.shared ? 1 : (walks.tiles * parts.most + slots - 1) / slots;
  const double softmax = softmax_us(arch, config) * (double)(rounds * parts.steps) + parts.merge_us;
  const double longer = parts.us > softmax ? parts.us : softmax,
               shorter = parts.us + softmax - longer;
  const double us = longer + BESIDE * shorter;
  return parts.most > 1 && knobs_of->split_keys == 1 && request->seqlen_q >= WARPGROUP_ROWS
             ? DIVIDED * us
             : us;
}

/* Tries the configs for few rows where *config is not set (has_one: it is), where its tiles leave
 * multiprocessors without work, or where most rows of its tiles are empty. The one that is expected
 * to take least time becomes *config, if that is less time than *config takes. Returns whether
 * *config is set. */
static bool take_of_few_rows(const struct ft_request *request, const struct ft_arch *arch,
                             bool has_one, struct ft_config *config) {
  static const int splits[] = {0, 1, 8};
  if (request->seqlen_q == 0 || request->heads_kv == 0 || request->ragged) return has_one;
  int64_t tiles = 0;
  double least = has_one ? estimate(request, arch, config, &tiles) : HUGE_VAL;
  if (tiles >= arch->sm_count && request->seqlen_q >= WARPGROUP_ROWS) return has_one;
  if (request->seqlen_q < WARPGROUP_ROWS) least *= 1 + 1e-9; /* of equals the deeper ring */
  const int head_dim = max_int(request->head_dim, request->head_dim_v);
  for (int i = 0; i < FT_COUNT(of_few_rows); ++i)
    for (int way = 0; way < 6 && head_dim <= of_few_rows[i].head_dim; ++way) {
      struct ft_wgmma_forward_knobs knobs_of = of_few_rows[i].knobs;
      knobs_of.integer_max = knobs_of.lazy_rescale = 1;
      knobs_of.pingpong = knobs_of.overlap_tiles;
      knobs_of.pack_gqa = way < 3;
      knobs_of.split_keys = splits[way % 3];
      if (knobs_of.split_keys > 1 && request->pages > 0) continue; /* lengths unknown */
      const struct ft_config few = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
      if (!ft_config_is_legal(&few, request, arch)) continue;
      const double us = estimate(request, arch, &few, &tiles);
      if (us >= least) continue;
      least = us;
      *config = few;
      has_one = true;
    }
  return has_one;
}

/* Sets *config where it is legal, its registers suffice, and the longest walks are worth dividing.
 */
static bool take_divided(const struct ft_request *request, const struct ft_arch *arch,
                         const struct ft_wgmma_forward_knobs *knobs_of, struct ft_config *config) {
  const struct ft_config split = ft_config_make(&ft_wgmma_forward_family, knobs_of);
  if (!ft_wgmma_forward_fits(request, arch, &split)) return false;
  const struct ft_walks walks = ft_wgmma_forward_walks_of(request, &split, arch);
  const int packed = ft_pack_of(&split, request).heads;
  const struct ft_mask_rows rows = ft_mask_rows_of_request(request, &walks, packed);
  if (ft_key_parts_of_rows(&rows, &walks, arch).most == 1) return false;
  *config = split;
  return true;
}

/* Where a row of the mask is so long that the others would wait for it, the longest walks are
 * divided. The others are short: the next tile's Q, K and V come as early as there is room for. */
static void divide_longest(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  enum { STAGES = 3 };
  if (request->mask_longest == 1 || request->seqlen_q == 0 || request->heads_kv == 0) return;
  struct ft_wgmma_forward_knobs knobs_of = *ft_wgmma_forward_knobs(config);
  if (knobs_of.split_keys) return;
  knobs_of.split_keys = knobs_of.direct_store = 1;
  knobs_of.lpt = knobs_of.multicast = 0;
  const bool plain = request->dtype != FT_E4M3 && request->score == 0 && !request->dropout;
  for (int stages = STAGES; plain && stages >= 2; --stages) {
    struct ft_wgmma_forward_knobs early = knobs_of;
    early.stages = stages;
    early.q_stages = 2;
    early.overlap_tiles = 1;
    early.pingpong = early.block_m > WARPGROUP_ROWS;
    if (take_divided(request, arch, &early, config)) return;
  }
  if (!knobs_of.overlap_tiles) knobs_of.q_stages = 1;
  (void)take_divided(request, arch, &knobs_of, config);
}

/* Tiles that differ run in pairs, a long one with a short one. Where the keys are many beside the
 * queries all tiles are long, and where all could run at once, pairs leave half of the
 * multiprocessors idle. */
static void alone_where_long(const struct ft_request *request, const struct ft_arch *arch,
                             struct ft_config *config) {
  struct ft_wgmma_forward_knobs knobs_of = *ft_wgmma_forward_knobs(config);
  if (!ft_request_tiles_differ(request) || knobs_of.split_keys || knobs_of.lpt ||
      request->mask_rows > 0 || request->heads_kv == 0 ||
      request->seqlen_k < 2 * request->seqlen_q ||
      ft_wgmma_forward_walks_of(request, config, arch).tiles > max_int(1, arch->sm_count))
    return;
  knobs_of.lpt = 1;
  knobs_of.multicast = 0;
  const struct ft_config alone = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
  if (ft_wgmma_forward_fits(request, arch, &alone)) *config = alone;
}

/* Sequences of different lengths in pages, prompts beside single queries: blocks have equal shares
 * of the steps of all walks, and heads that share K and V share tiles. Where the mean sequence has
 * few rows, so do the tiles. Prompts alone are faster by whole walks, the longest first. */
static bool take_of_sequences(const struct ft_request *request, const struct ft_arch *arch,
                              struct ft_config *config) {
  enum { PROMPTS = 256 }; /* queries of the mean sequence */
  static const struct {
    int head_dim; /* max(d, dv) is at most this */
    bool few;     /* rows */
    struct ft_wgmma_forward_knobs knobs;
  } of_sequences[] = {
      {128, true, {TILE(64, 128), .stages = 3, .q_stages = 1}},
      {64, false, {TILE(128, 128), .stages = 3, .q_stages = 2, .overlap_tiles = 1, .pingpong = 1}},
      {128, false, {TILE(128, 128), .stages = 2, .q_stages = 2, .overlap_tiles = 1, .pingpong = 1}},
      {256, true, {TILE(64, 64), .stages = 3, .q_stages = 1}},
      {256, true, {TILE(64, 64), .stages = 2, .q_stages = 1}},
      {256, false, {TILE(128, 64), .stages = 2, .q_stages = 1}},
  };
  if (!request->ragged || request->pages == 0 || request->dtype == FT_E4M3 ||
      request->seqlen_q > PROMPTS * request->batch)
    return false;
  const int group = request->heads_kv > 0 ? request->heads_q / request->heads_kv : 1;
  const int head_dim = max_int(request->head_dim, request->head_dim_v);
  const bool few = request->seqlen_q * group <= WARPGROUP_ROWS * request->batch;
  for (int i = 0; i < FT_COUNT(of_sequences); ++i) {
    struct ft_wgmma_forward_knobs knobs_of = of_sequences[i].knobs;
    if (head_dim > of_sequences[i].head_dim || few != of_sequences[i].few) continue;
    knobs_of.integer_max = knobs_of.lazy_rescale = knobs_of.direct_store = knobs_of.split_keys = 1;
    for (knobs_of.pack_gqa = group > 1; knobs_of.pack_gqa >= 0; --knobs_of.pack_gqa) {
      *config = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
      if (ft_wgmma_forward_fits(request, arch, config)) return true;
    }
  }
  return false;
}

bool ft_wgmma_forward_default(const struct ft_request *request, const struct ft_arch *arch,
                              struct ft_config *config) {
  static const double CLEARLY = 1.1, PAGES = 0.95; /* estimates of two families */
  struct ft_config few;
  double us = 0;
  int64_t tiles;
  if (take_of_sequences(request, arch, config)) return true;
  const bool by_mma =
      request->dtype != FT_E4M3 && ft_mma_forward_of_few_rows(request, arch, &few, &us);
  const bool has_one = take_favourite(request, arch, config) || climb_down(request, arch, config);
  if (has_one) fit_lengths(request, arch, config);
  if (has_one) ft_wgmma_forward_few_scored(request, arch, config);
  if (!take_of_few_rows(request, arch, has_one, config)) return false;
  if (ft_wgmma_forward_knobs(config)->split_keys == 0)
    (void)ft_wgmma_forward_small(request, arch, config);
  const double least = by_mma ? estimate(request, arch, config, &tiles) : 0;
  if (us < (request->pages > 0 ? PAGES : CLEARLY) * least) return false;
  alone_where_long(request, arch, config);
  ft_wgmma_forward_of_pages(request, arch, config);
  divide_longest(request, arch, config);
  ft_wgmma_forward_turned(request, arch, config);
  ft_wgmma_forward_far_scored(request, arch, config);
  return true;
}
