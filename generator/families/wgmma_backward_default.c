/* wgmma_backward_default.c: the default config of the backward by wgmma.
 * in -> out: request + arch -> config. */
#include "generator/families/plan.h"
#include "generator/families/wgmma_backward.h"

/* Which requests a favourite is for. The walk of a key tile is over the queries of all heads that
 * share its kv head. */
enum when {
  ALL,
  UNSCORED,     /* without a score function */
  DROPPED,      /* UNSCORED, with dropout */
  PLAIN,        /* UNSCORED, without dropout */
  FEW,          /* UNSCORED; tiles of 64 keys all run at once, see tiles_are_few */
  FEW_SHORT,    /* FEW, not deterministic; with dropout, or walks of 1024 queries at most */
  SHORT,        /* PLAIN, not deterministic; walks of 512 queries at most */
  WIDE,         /* PLAIN; tiles of 192 keys take clearly fewer rounds than those of 128, or many */
  PLAIN_CAUSAL, /* PLAIN, causal, without mask, window and ragged, not deterministic */
  LONG_CAUSAL,  /* PLAIN_CAUSAL, more than 96 columns; walks of 8192 queries or more */
  MEDIUM,       /* PLAIN; walks of fewer than 2048 queries, 1024 where tiles of 128x128 that add dQ
                   from registers are better; without mask, window and ragged */
  DROPPED_MEDIUM,  /* the same with dropout */
  SCORED_AND_MORE, /* with a score function, and with dropout or gradients of captured things: these
                      leave the fewest registers. Without a block mask */
};

/* Best first, as measured on an H200 (bench/ledger.md). */
static const struct {
  int head_dim; /* max(d, dv) is at most this */
  enum when when;
  struct ft_wgmma_backward_knobs knobs;
} favourites[] = {
    {64,
     FEW_SHORT,
     {TILE(64, 64), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .kv_in_regs = 1,
      .early_scores = 1, .direct_store = 1}},
    {64, FEW, {TILE(128, 64), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .direct_store = 1}},
    {128, FEW, {TILE(64, 64), .q_stages = 3, .do_stages = 3, .ds_stages = 2}},
    {64,
     SHORT,
     {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .kv_in_regs = 1,
      .direct_store = 1, .persistent = 1, .pacing = FT_PACING_STAGGERED}},
    {64,
     DROPPED_MEDIUM,
     {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .kv_in_regs = 1,
      .direct_store = 1, .pacing = FT_PACING_IN_TURNS}},
    {64,
     DROPPED,
     {TILE(128, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .direct_store = 1,
      .pacing = FT_PACING_IN_TURNS}},
    {64,
     WIDE,
     {TILE(64, 192), .q_stages = 3, .do_stages = 3, .ds_stages = 2, .loads_beside_dq = 1,
      .direct_store = 1, .pacing = FT_PACING_IN_TURNS}},
    {64,
     MEDIUM,
     {TILE(64, 128), .q_stages = 3, .do_stages = 3, .ds_stages = 3, .kv_in_regs = 1,
      .early_scores = 1, .pacing = FT_PACING_STAGGERED}},
    {64,
     UNSCORED,
     {TILE(128, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .direct_store = 1,
      .pacing = FT_PACING_STAGGERED}},
    /* Short sequences. */
    {64,
     ALL,
     {TILE(64, 128), .q_stages = 3, .do_stages = 3, .ds_stages = 3, .kv_in_regs = 1,
      .early_scores = 1, .pacing = FT_PACING_STAGGERED}},
    {80,
     PLAIN_CAUSAL,
     {TILE(64, 128), .q_stages = 3, .do_stages = 3, .ds_stages = 2, .kv_in_regs = 1,
      .early_scores = 1, .direct_store = 1, .pacing = FT_PACING_IN_TURNS}},
    {80,
     PLAIN,
     {TILE(64, 128), .q_stages = 3, .do_stages = 3, .ds_stages = 2, .kv_in_regs = 1,
      .direct_store = 1, .pacing = FT_PACING_STAGGERED}},
    /* Deterministic: dQ has a second stage, which leaves no room for a third one of Q and dO. */
    {80,
     PLAIN,
     {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .kv_in_regs = 1,
      .direct_store = 1, .pacing = FT_PACING_STAGGERED}},
    {128,
     DROPPED,
     {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .pacing = FT_PACING_IN_TURNS}},
    {128,
     SCORED_AND_MORE,
     {TILE(64, 128), .q_stages = 3, .do_stages = 3, .ds_stages = 2, .loads_beside_dq = 1,
      .early_scores = 1, .pacing = FT_PACING_IN_TURNS}},
    {128,
     LONG_CAUSAL,
     {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .pacing = FT_PACING_IN_TURNS}},
    {128,
     ALL,
     {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .pacing = FT_PACING_STAGGERED}},
    /* Masks of 64 columns, few keys. */
    {128, ALL, {TILE(64, 64), .q_stages = 2, .do_stages = 2, .ds_stages = 2}},
};

enum { SHORT_WALK = 512 };

/* The query rows of all heads that share a kv head: a key tile walks over them where nothing is
 * masked. 0: the lengths are not known. */
static int64_t walked_rows(const struct ft_request *request) {
  return request->heads_kv > 0 ? request->seqlen_q * (request->heads_q / request->heads_kv) : 0;
}

/* Tiles of so many keys, of one batch entry. */
static int64_t key_tiles(const struct ft_request *request, int keys) {
  return (request->seqlen_k + keys - 1) / keys * request->heads_kv;
}

/* Tiles of so many keys, of all batch entries, are no more than the slots. */
static bool tiles_fit(const struct ft_request *request, int keys, int64_t slots) {
  const int64_t tiles = key_tiles(request, keys);
  return tiles > 0 && tiles <= slots && request->batch <= slots / tiles;
}

/* Whether a second round of tiles ends before the longest walk of the first. The n tiles of a
 * causal head walk over n to 1 steps and start in that order. So the shortest walks of the first
 * round are followed by the short ones of the second, and a pair takes as long as the longest walk
 * while all heads have no more than two rounds of n + 2 tiles. The 2 stand for a tile's start and
 * end, which take about as long as two steps. */
static bool second_round_is_hidden(const struct ft_request *request, int keys, int64_t slots) {
  enum { ROUNDS = 2, START_AND_END = 2 };
  const int64_t tiles = key_tiles(request, keys) + START_AND_END * request->heads_kv;
  return request->causal && !request->window && request->seqlen_q == request->seqlen_k &&
         tiles > 0 && tiles <= ROUNDS * slots && request->batch <= ROUNDS * slots / tiles;
}

/* Tiles of 64 keys, which take less time than those of 128, all run at once. With dropout they take
 * three quarters of the time, and a short second round may follow. Where adds to dQ have an order,
 * a tile's add waits for that of the tile before it. Steps of 64 keys are too short to hide this
 * wait, unless few tiles run at once and each has many steps. */
static bool tiles_are_few(const struct ft_request *request, const struct ft_arch *arch) {
  enum { KEYS = 64, ORDERED_SHARE = 4, ORDERED_ROWS = 4 };
  if (request->mask_rows > 0 || request->ragged) return false;
  if (request->deterministic)
    return tiles_fit(request, KEYS, arch->sm_count / ORDERED_SHARE) &&
           walked_rows(request) >= ORDERED_ROWS * request->seqlen_k;
  return tiles_fit(request, KEYS, arch->sm_count) ||
         (request->dropout && second_round_is_hidden(request, KEYS, arch->sm_count));
}

/* Tiles of 128 keys need another round for the few that are left over, and tiles of 192 do not.
 * Where walks have different lengths, the short ones fill the last round. */
static bool wide_tiles_save_a_round(const struct ft_request *request, const struct ft_arch *arch) {
  enum { KEYS = 128, WIDE_KEYS = 192 };
  static const double CLEARLY = 0.85;
  if (request->batch == 0 || request->heads_kv == 0 || request->causal || request->window ||
      request->mask_rows > 0 || request->ragged)
    return false;
  const int64_t tiles = key_tiles(request, KEYS) * request->batch;
  const int64_t wide = key_tiles(request, WIDE_KEYS) * request->batch;
  const int64_t rounds = (tiles + arch->sm_count - 1) / arch->sm_count;
  const int64_t wide_rounds = (wide + arch->sm_count - 1) / arch->sm_count;
  return (double)(wide_rounds * WIDE_KEYS) <= CLEARLY * (double)(rounds * KEYS);
}

static bool walks_are_short(const struct ft_request *request, int64_t most) {
  const int64_t rows = walked_rows(request);
  return rows > 0 && rows <= most;
}

/* What the last round of causal tiles of 192 keys leaves idle is little beside the rest. Walks of
 * 2048 queries won at 5 rounds and lost at 3, those of 1024 won at 23. Walks that are not causal
 * lost to tiles of 128x128 that add dQ from registers, where they had won before. Where heads share
 * their keys, such tiles lost. Ordered adds come from shared memory: there they won at 20 rounds of
 * 8192 queries. */
static bool wide_tiles_take_rounds(const struct ft_request *request, const struct ft_arch *arch) {
  enum { KEYS = 192, ROUNDS = 16, CAUSAL_ROUNDS = 4, CAUSAL = 1024, LONG = 2048, FULL = 8192 };
  const bool causal = request->causal != FT_CAUSAL_NONE;
  const int rounds = causal && !walks_are_short(request, LONG - 1) ? CAUSAL_ROUNDS : ROUNDS;
  return request->heads_q == request->heads_kv && request->mask_rows == 0 && !request->ragged &&
         (causal || (!request->window && request->deterministic)) && key_tiles(request, KEYS) > 0 &&
         !walks_are_short(request, (causal ? CAUSAL : FULL) - 1) &&
         !tiles_fit(request, KEYS, rounds * (int64_t)arch->sm_count);
}

static bool when_is(enum when when, const struct ft_request *request, const struct ft_arch *arch) {
  enum { FEW_WALK = 1024, LONG_WALK = 2048, LONGER_WALK = 8192, NARROW = 96 };
  const bool unscored = request->score == 0, dropped = unscored && request->dropout;
  const bool plain = unscored && !request->dropout;
  const bool whole = request->mask_rows == 0 && !request->window && !request->ragged;
  const bool medium = whole && walks_are_short(request, LONG_WALK - 1);
  const bool red = !request->causal && !request->deterministic; /* see adds_from_registers */
  switch (when) {
  case ALL: return true;
  case UNSCORED: return unscored;
  case DROPPED: return dropped;
  case PLAIN: return plain;
  case FEW: return unscored && tiles_are_few(request, arch);
  case FEW_SHORT:
    return when_is(FEW, request, arch) && !request->deterministic &&
           (dropped || walks_are_short(request, FEW_WALK));
  case SHORT: return plain && !request->deterministic && walks_are_short(request, SHORT_WALK);
  case WIDE:
    return plain &&
           (wide_tiles_save_a_round(request, arch) || wide_tiles_take_rounds(request, arch));
  case PLAIN_CAUSAL: return plain && whole && !request->deterministic && request->causal;
  case LONG_CAUSAL:
    return when_is(PLAIN_CAUSAL, request, arch) && walked_rows(request) >= LONGER_WALK &&
           max_int(request->head_dim, request->head_dim_v) > NARROW;
  case MEDIUM: return plain && medium && (!red || walks_are_short(request, FEW_WALK - 1));
  case DROPPED_MEDIUM: return dropped && medium;
  case SCORED_AND_MORE:
    return !unscored && request->mask_rows == 0 &&
           (request->dropout || request->score_gradients != 0);
  }
  return false;
}

/* Whether the last kernel, which makes dQ, had better start early. It can only use the time in
 * which the last key tiles still run. In causal heads the last tiles have the shortest walks. In
 * others all tiles end together if they all run at once. Where all walks are short, the signal at
 * the end of each block costs more time than is won. With ordered adds it pays where there are two
 * rounds of tiles. */
static bool early_dq_pays(const struct ft_request *request, const struct ft_arch *arch,
                          const struct ft_wgmma_backward_knobs *k) {
  enum { STEPS = 32, KEYS = 128, ROUNDS = 2 };
  if (request->deterministic)
    return !request->causal && !tiles_fit(request, KEYS, arch->sm_count) &&
           tiles_fit(request, KEYS, ROUNDS * (int64_t)arch->sm_count);
  if (request->causal) return walked_rows(request) > (int64_t)STEPS * k->block_m;
  return !walks_are_short(request, SHORT_WALK) || !tiles_fit(request, k->block_n, arch->sm_count);
}

/* Whether the walk of some column of a block mask may be far longer than the mean one, so that it
 * had better be divided. A score function makes its lists on the device, and nobody knows. */
static bool columns_may_be_long(const struct ft_request *request) {
  return request->mask_rows > 0 && (request->mask_longest > 1 || request->score != 0);
}

/* Whether blocks had better take the steps of all their key tiles in one loop. As measured it pays
 * under block masks, for heads of up to 64 columns and where long columns are divided, so that most
 * walks are short. It does not where heads share their keys. */
static bool streaming_pays(const struct ft_request *request,
                           const struct ft_wgmma_backward_knobs *k) {
  enum { NARROW = 64, ROWS = 128 };
  const bool narrow = max_int(request->head_dim, request->head_dim_v) <= NARROW;
  return request->mask_rows > 0 && request->causal == FT_CAUSAL_NONE && !request->window &&
         request->heads_q == request->heads_kv && !k->kv_in_regs &&
         (narrow ? k->block_m == ROWS : request->mask_longest > 1);
}

/* The same without a block mask, where all walks are short: K of the next tile comes while a tile
 * is worked at. Causal walks, and those of 1024 queries, have to be many. */
static bool streaming_pays_in_short_walks(const struct ft_request *request,
                                          const struct ft_arch *arch,
                                          const struct ft_wgmma_backward_knobs *k) {
  enum { NARROW = 64, FEW_ROWS = 768, ROWS = 1024, ROUNDS = 8 };
  const int64_t rounds = !request->causal && walks_are_short(request, FEW_ROWS) ? 1 : ROUNDS;
  return ft_heads_are_plain(request) && !request->dropout && !request->deterministic &&
         !request->window && !request->sinks && request->heads_q == request->heads_kv &&
         max_int(request->head_dim, request->head_dim_v) > NARROW && !k->kv_in_regs && k->pacing &&
         walks_are_short(request, ROWS) && !tiles_fit(request, k->block_n, rounds * arch->sm_count);
}

/* Steps of 128 queries make dQ in two pieces, one after the other: without a place in shared memory
 * to wait for they took 5 % less time. With dropout nobody has measured it, and in one loop over
 * the steps of all key tiles it lost. */
static bool adds_from_registers(const struct ft_request *request,
                                const struct ft_wgmma_backward_knobs *k) {
  enum { ROWS = 128, KEYS = 128 };
  return k->block_m == ROWS && k->block_n == KEYS && k->persistent == FT_ONE_TILE &&
         request->score == 0 && !request->dropout && !request->deterministic;
}

bool ft_wgmma_backward_default(const struct ft_request *request, const struct ft_arch *arch,
                               struct ft_config *config) {
  enum { PART_STEPS = 32, MOST_STAGGERED = 96, GROUP_COLUMNS = 640 };
  const bool plain = when_is(PLAIN, request, arch);
  for (int i = 0; i < FT_COUNT(favourites); ++i) {
    if (max_int(request->head_dim, request->head_dim_v) > favourites[i].head_dim ||
        !when_is(favourites[i].when, request, arch))
      continue;
    struct ft_wgmma_backward_knobs knobs_of = favourites[i].knobs;
    const bool divided = columns_may_be_long(request);
    knobs_of.direct_store |=
        ft_outputs_are_wide(request) || (request->mask_rows > 0 && !divided && plain);
    knobs_of.part_steps = divided ? PART_STEPS : 0;
    if (plain && streaming_pays(request, &knobs_of)) {
      const bool wide = max_int(request->head_dim, request->head_dim_v) > MOST_STAGGERED;
      knobs_of.persistent = FT_STREAMED;
      knobs_of.direct_store |= !wide || request->head_dim_v > request->head_dim;
      if (wide) knobs_of.pacing = FT_PACING_IN_TURNS;
    }
    const bool short_walks = streaming_pays_in_short_walks(request, arch, &knobs_of);
    if (short_walks) {
      knobs_of.persistent = FT_STREAMED;
      knobs_of.direct_store = 1;
      knobs_of.pacing = FT_PACING_IN_TURNS;
    }
    const bool few = favourites[i].when == FEW && request->deterministic;
    knobs_of.early_dq = knobs_of.persistent != FT_PERSISTENT && ft_backward_has_sections(request) &&
                        favourites[i].when != FEW_SHORT &&
                        (few || short_walks || early_dq_pays(request, arch, &knobs_of));
    knobs_of.heads_inner = ft_heads_inner_pays(request, GROUP_COLUMNS);
    if (adds_from_registers(request, &knobs_of)) knobs_of.dq_adds = FT_DQ_FROM_REGISTERS;
    *config = ft_config_make(&ft_wgmma_backward_family, &knobs_of);
    if (ft_config_is_legal(config, request, arch)) return true;
  }
  return false;
}
