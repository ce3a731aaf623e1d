/* wgmma_backward.c: the gradients by wgmma.
 * in -> out: request + config + arch -> budget, broken rules, the default config. */
#include "generator/families/wgmma_backward.h"

#include <string.h>

#include "generator/families/plan.h"
#include "generator/visibility.h"

FT_DEFINE_TABLES(FT_WGMMA_BACKWARD_KNOBS, FT_WGMMA_BACKWARD_BUDGET);

enum { WARPGROUP = 128, WARPGROUP_KEYS = 64 };

/* Other requests stay with mma_backward. */
static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { HEAD_DIM_MOST = 128 };
  return arch->sm == 90 && !ft_dtype_is_fp32(request->dtype) &&
         (!request->deterministic || ft_adds_have_an_order(request)) &&
         max_int(request->head_dim, request->head_dim_v) <= HEAD_DIM_MOST;
}

/* ---- budget ---- */

/* Barriers | LSE | delta | K stages | V | Q stages | dO stages | dS stages | dQ. Panels are aligned
 * by whole 1024 bytes. */
static void plan_tiles(struct ft_budget *budget, struct ft_wgmma_backward_budget *own,
                       const struct ft_wgmma_backward_knobs *k) {
  enum { BARRIERS = 512, BARRIERS_AND_NOTES = 1024, ALIGNMENT = 1024, WORD = 4 };
  const int rows = k->block_m * FT_PANEL_ROW, keys = k->block_n * FT_PANEL_ROW;
  own->q_bytes = rows * own->d_panels;
  own->do_bytes = rows * own->dv_panels;
  own->k_bytes = keys * own->d_panels;
  own->v_bytes = keys * own->dv_panels;
  own->ds_bytes = keys * (k->block_m / WARPGROUP_KEYS);
  own->smem_lse_offset = k->persistent == FT_STREAMED ? BARRIERS_AND_NOTES : BARRIERS;
  own->smem_delta_offset = own->smem_lse_offset + k->q_stages * k->block_m * WORD;
  own->smem_k_offset =
      round_up(own->smem_delta_offset + k->do_stages * k->block_m * WORD, ALIGNMENT);
  own->smem_v_offset = own->smem_k_offset + own->k_stages * own->k_bytes;
  own->smem_q_offset = own->smem_v_offset + own->v_bytes;
  own->smem_do_offset = own->smem_q_offset + k->q_stages * own->q_bytes;
  own->smem_ds_offset = own->smem_do_offset + k->do_stages * own->do_bytes;
  own->smem_dq_offset = own->smem_ds_offset + k->ds_stages * own->ds_bytes;
  own->smem_kept_offset =
      own->smem_dq_offset + max_int(1, own->dq_stages) * k->block_m * own->d_pad * WORD;
  budget->smem_bytes = own->smem_kept_offset + own->kept_stages * own->kept_bytes;
}

/* Dropout is drawn by warps beside the loader, which leave a bit for each element of a step. With a
 * score function, where the warpgroup that makes dQ loads, and where those warps add to dQ in
 * order, consumers draw. */
static bool draws_apart(const struct ft_request *request, const struct ft_wgmma_backward_knobs *k) {
  return request->dropout && request->score == 0 && !request->deterministic && !k->loads_beside_dq;
}

/* A block begins with the same number of registers for each thread, and its warpgroups exchange
 * them, by multiples of 8. The warpgroup that makes dQ needs half as many as its product has
 * columns and 32 beside them. Products of 64 columns and of the rest read dS twice, so one product
 * makes all columns where consumers can do without the registers. With dropout and where adds have
 * an order that gains nothing. */
static void share_registers(struct ft_budget *budget, struct ft_wgmma_backward_budget *own,
                            const struct ft_wgmma_backward_knobs *k, const struct ft_arch *arch) {
  enum { LOADER = 24, LOADER_AND_MORE = 32, CONSUMER_MOST = 240, SPARE = 8 };
  enum { DQ_PIECE = 64, DQ_BESIDE = 32, DQ_LOADS = 8, DQ_MOST = 128 };
  if (!is_within(own->consumers, 1, 4)) return; /* none to share, or too few for any tile */
  const int warpgroups = budget->threads / WARPGROUP;
  budget->launch_regs = arch->regs_per_sm / budget->threads / 8 * 8;
  const int pool = budget->launch_regs * warpgroups;
  const bool more = own->dq_stages > 0 || own->kept_bytes > 0 || k->persistent == FT_STREAMED;
  own->loader_regs = k->loads_beside_dq ? 0 : more ? LOADER_AND_MORE : LOADER;
  const int left = pool - own->loader_regs - DQ_BESIDE - (k->loads_beside_dq ? DQ_LOADS : 0);
  const int whole = (left - round_up(own->dq_columns / 2, 8)) / own->consumers / 8 * 8;
  if (own->dq_columns <= DQ_PIECE || whole < budget->regs_estimate + SPARE)
    own->dq_columns = DQ_PIECE;
  const int consumer = (left - round_up(own->dq_columns / 2, 8)) / own->consumers / 8 * 8;
  own->consumer_regs = min_int(CONSUMER_MOST, consumer);
  own->dq_regs = min_int(DQ_MOST, pool - own->loader_regs - own->consumers * own->consumer_regs);
  budget->regs_limit = own->consumer_regs;
}

/* An accumulator of 64 x C values lies in 128 threads: C / 2 registers of each. KV_OPERAND: with
 * kv_in_regs and none to spare ptxas serialises the products (d = 64, tiles of 128x128) or spills
 * (d = 96, 64x128). */
static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  enum { ADDRESSES = 24, DRAWN = 8, SCORED = 8, KV_OPERAND = 4 };
  enum { PREPARE_THREADS = 256, DQ_THREADS = 128, ADDERS = 2, DRAWN_STEPS = 4 };
  const struct ft_wgmma_backward_knobs *const k = ft_wgmma_backward_knobs(config);
  struct ft_wgmma_backward_budget own = {
      .d_pad = round_up(request->head_dim, 16),
      .dv_pad = round_up(request->head_dim_v, 16),
      .dq_sums = ft_dq_sums(request, request->deterministic),
      .k_stages = k->persistent == FT_STREAMED ? 2 : 1,
      .dq_stages = request->deterministic ? ADDERS : 0,
      .dq_columns = request->deterministic || request->dropout ? 0 : request->head_dim,
      .prepare_threads = PREPARE_THREADS,
      .dq_threads = DQ_THREADS,
      .consumers = k->block_n / WARPGROUP_KEYS,
      .regs_s = k->block_m / 2,
      .regs_p = k->block_m / 4,
      .regs_sums = (request->head_dim + request->head_dim_v) / 2,
  };
  if (draws_apart(request, k))
    own.kept_stages = DRAWN_STEPS, own.kept_bytes = k->block_n * k->block_m / 8;
  own.d_panels = ft_panels(own.d_pad);
  own.dv_panels = ft_panels(own.dv_pad);
  own.qk_stride = ft_row_stride(own.d_pad, ft_dtype_bytes(request->dtype));
  own.dq_smem = k->block_m * own.qk_stride;
  own.regs_kv = k->kv_in_regs ? (own.d_pad + own.dv_pad) / 4 : 0;
  budget->threads = WARPGROUP * (own.consumers + (k->loads_beside_dq ? 1 : 2));
  budget->ctas_per_sm = 1;
  plan_tiles(budget, &own, k);
  budget->regs_estimate = own.regs_sums + own.regs_s + own.regs_p + own.regs_kv + ADDRESSES +
                          (k->kv_in_regs ? KV_OPERAND : 0) + (request->dropout ? DRAWN : 0) +
                          (request->score ? SCORED : 0);
  share_registers(budget, &own, k, arch);
  memcpy(budget->own, &own, sizeof own);
}

/* ---- rules ---- */

static const struct ft_wgmma_backward_knobs *knobs(const struct ft_rule_case *of) {
  return ft_wgmma_backward_knobs(of->config);
}

static const struct ft_wgmma_backward_budget *own_budget(const struct ft_rule_case *of) {
  return ft_wgmma_backward_budget(of->budget);
}

static bool warpgroup_keys(const struct ft_rule_case *of) {
  return knobs(of)->block_n % WARPGROUP_KEYS == 0 && is_within(own_budget(of)->consumers, 1, 4);
}

static bool step_queries(const struct ft_rule_case *of) {
  return knobs(of)->block_m % WARPGROUP_KEYS == 0 && knobs(of)->block_m <= 256;
}

/* ptxas holds all of one instruction's accumulator at once, with addresses and an operand in
 * registers. */
static bool accumulators(const struct ft_rule_case *of) {
  enum { BESIDE = 30 };
  const int sum = max_int(of->request->head_dim, of->request->head_dim_v) / 2;
  return max_int(own_budget(of)->regs_s, sum) + BESIDE <= of->budget->launch_regs;
}

static bool one_stage(const struct ft_rule_case *of) {
  return knobs(of)->q_stages >= 2;
}

/* The step whose dS says that tiles are free must not wait for the tiles that take their place. */
static bool stages_beside_dq(const struct ft_rule_case *of) {
  const int least = knobs(of)->early_scores ? 3 : 2;
  return !knobs(of)->loads_beside_dq ||
         (knobs(of)->q_stages == knobs(of)->do_stages && knobs(of)->q_stages >= least);
}

static bool adders(const struct ft_rule_case *of) {
  return !of->request->deterministic || !knobs(of)->loads_beside_dq;
}

static bool takes_tiles(const struct ft_rule_case *of) {
  return !knobs(of)->persistent ||
         (knobs(of)->direct_store && !knobs(of)->loads_beside_dq && !of->request->deterministic);
}

/* The loop over the steps of all key tiles: other requests have state of a tile or a head in it. */
static bool streamed(const struct ft_rule_case *of) {
  return knobs(of)->persistent != FT_STREAMED ||
         (!of->request->ragged && !of->request->dropout && of->request->score == 0 &&
          !knobs(of)->kv_in_regs && !knobs(of)->early_scores &&
          knobs(of)->q_stages + knobs(of)->ds_stages < FT_STREAMED_NOTES);
}

static bool wide_outputs(const struct ft_rule_case *of) {
  return !ft_outputs_are_wide(of->request) || knobs(of)->direct_store;
}

static bool can_ask_for_sections(const struct ft_request *request) {
  return !request->ragged && !request->sinks && request->score_gradients == 0;
}

static bool early_dq(const struct ft_rule_case *of) {
  return !knobs(of)->early_dq ||
         (knobs(of)->persistent != FT_PERSISTENT && can_ask_for_sections(of->request));
}

static bool parts(const struct ft_rule_case *of) {
  return knobs(of)->part_steps == 0 ||
         (of->request->mask_rows > 0 && knobs(of)->persistent != FT_PERSISTENT);
}

static bool pacing(const struct ft_rule_case *of) {
  return !knobs(of)->pacing || own_budget(of)->consumers >= 2;
}

static bool uneven_stages(const struct ft_rule_case *of) {
  return knobs(of)->q_stages == knobs(of)->do_stages;
}

/* With more than 64 columns the loop over the steps of all key tiles lost where walks are long, and
 * where heads share their keys. */
static bool streams_short_walks(const struct ft_rule_case *of) {
  enum { NARROW = 64, SHORT = 1024 };
  const struct ft_request *const request = of->request;
  return knobs(of)->persistent != FT_STREAMED ||
         (request->heads_q == request->heads_kv &&
          (max_int(request->head_dim, request->head_dim_v) <= NARROW ||
           request->seqlen_q <= SHORT || request->mask_longest > 1));
}

static bool long_tile(const struct ft_rule_case *of) {
  return ft_half_a_tile_is_used(of->request->seqlen_q, knobs(of)->block_m) &&
         ft_half_a_tile_is_used(of->request->seqlen_k, knobs(of)->block_n);
}

static const struct ft_rule rules[] = {
    {"warpgroup-keys", FT_CANNOT_RUN, warpgroup_keys,
     "a consumer has 64 keys, the m of wgmma, and registers are for four of them at most",
     FT_READS_ANY},
    {"step-queries", FT_CANNOT_RUN, step_queries,
     "dQ is made of 64 queries at a time, and one wgmma makes scores of 256 at most", FT_READS_ANY},
    {"accumulators", FT_CANNOT_RUN, accumulators,
     "the accumulator of one wgmma must fit the registers with which a block of so many threads "
     "begins",
     FT_READS_ANY},
    {"one-stage", FT_CANNOT_RUN, one_stage, "the next step's Q must come while this one is read",
     FT_READS_ANY},
    {"stages-beside-dq", FT_CANNOT_RUN, stages_beside_dq,
     "with loads_beside_dq Q and dO have as many stages, one more where the next S comes early",
     FT_READS_ANY},
    {"adders", FT_CANNOT_RUN, adders,
     "the warps that add to dQ in order are of the loading warpgroup, which loads_beside_dq has "
     "not",
     FT_READS_ANY},
    {"takes-tiles", FT_CANNOT_RUN, takes_tiles,
     "the next K and V of a persistent block take the place where dK and dV would be staged, so it "
     "needs direct_store; loads_beside_dq and deterministic adds serve one key tile a block",
     FT_READS_ANY},
    {"streamed", FT_CANNOT_RUN, streamed,
     "steps of all key tiles in one loop: not for ragged lengths, dropout and scores, rows of K "
     "and "
     "V in registers and an early S; the loader has notes of 8 steps",
     FT_READS_ANY},
    {"wide-outputs", FT_CANNOT_RUN, wide_outputs,
     "dK and dV in fp32 have no room where K and V were: they go from registers to global memory",
     FT_READS_ANY},
    {"early-dq", FT_CANNOT_RUN, early_dq,
     "a persistent block and a list of ragged key tiles know no L2 section; the gradients of sinks "
     "and of what a score captures are sums over all",
     FT_READS_ANY},
    {"parts", FT_CANNOT_RUN, parts,
     "walks are divided where the lists of a block mask say that some are longer than others; "
     "persistent blocks take whole ones",
     FT_READS_ANY},
    {"pacing", FT_CANNOT_RUN, pacing, "it takes two consumers or more to be out of step",
     FT_READS_ANY},
    {"uneven-stages", FT_NOT_WORTH_TRYING, uneven_stages,
     "Q and dO of a step are read together, so stages of one alone wait for the other",
     FT_READS_ANY},
    {"consumer-registers", FT_NOT_WORTH_TRYING, ft_registers_suffice,
     "sums, scores and P must fit the registers that a consumer can claim", FT_READS_ANY},
    {"streamed-walks", FT_NOT_WORTH_TRYING, streams_short_walks,
     "one loop over the steps of all key tiles serves short walks, and heads of up to 64 columns",
     FT_READS_ANY},
    {"long-tile", FT_NOT_WORTH_TRYING, long_tile,
     "more than half of the rows would lie beyond the last query or key", FT_READS_ANY},
};

/* ---- the default ---- */

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
  MEDIUM,       /* PLAIN; walks of fewer than 2048 queries, without mask, window and ragged */
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
      .direct_store = 1, .pacing = FT_PACING_IN_TURNS}},
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
 * a tile waits at each step for the one before it of its head, and a step of 64 keys is too short
 * to hide that, unless few tiles add at once and walks are long beside the waits. */
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

/* What the last round of tiles of 192 keys leaves idle is little beside the rest. Causal walks of
 * 2048 queries won at 5 rounds and lost at 3, those of 1024 won at 23; others won at 20 if they had
 * 8192 queries, not with 4096. Where heads share their keys, such tiles lost. */
static bool wide_tiles_take_rounds(const struct ft_request *request, const struct ft_arch *arch) {
  enum { KEYS = 192, ROUNDS = 16, CAUSAL_ROUNDS = 4, CAUSAL = 1024, LONG = 2048, FULL = 8192 };
  const bool causal = request->causal != FT_CAUSAL_NONE;
  const int rounds = causal && !walks_are_short(request, LONG - 1) ? CAUSAL_ROUNDS : ROUNDS;
  return request->heads_q == request->heads_kv && request->mask_rows == 0 && !request->ragged &&
         (causal || !request->window) && key_tiles(request, KEYS) > 0 &&
         !walks_are_short(request, (causal ? CAUSAL : FULL) - 1) &&
         !tiles_fit(request, KEYS, rounds * (int64_t)arch->sm_count);
}

static bool when_is(enum when when, const struct ft_request *request, const struct ft_arch *arch) {
  enum { FEW_WALK = 1024, LONG_WALK = 2048, LONGER_WALK = 8192, NARROW = 96 };
  const bool unscored = request->score == 0, dropped = unscored && request->dropout;
  const bool plain = unscored && !request->dropout;
  const bool whole = request->mask_rows == 0 && !request->window && !request->ragged;
  const bool medium = whole && walks_are_short(request, LONG_WALK - 1);
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
    return when_is(PLAIN_CAUSAL, request, arch) && request->heads_q == request->heads_kv &&
           walked_rows(request) >= LONGER_WALK &&
           max_int(request->head_dim, request->head_dim_v) > NARROW;
  case MEDIUM: return plain && medium;
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

/* Whether blocks had better take the steps of all their key tiles in one loop, as measured: walks
 * of block masks, where heads have at most 64 columns, or where long columns are divided, so that
 * most walks are short. Where heads share their keys it lost, and with more columns long walks
 * did. */
static bool streaming_pays(const struct ft_request *request,
                           const struct ft_wgmma_backward_knobs *k) {
  enum { NARROW = 64, ROWS = 128 };
  const bool narrow = max_int(request->head_dim, request->head_dim_v) <= NARROW;
  return request->mask_rows > 0 && !request->ragged && !request->deterministic &&
         request->causal == FT_CAUSAL_NONE && !request->window &&
         request->heads_q == request->heads_kv && !k->kv_in_regs && !k->early_scores &&
         (narrow ? k->block_m == ROWS : request->mask_longest > 1);
}

static bool default_config(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  enum { PART_STEPS = 32, MOST_STAGGERED = 96 };
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
      knobs_of.persistent = FT_STREAMED;
      knobs_of.direct_store = 1;
      if (max_int(request->head_dim, request->head_dim_v) > MOST_STAGGERED)
        knobs_of.pacing = FT_PACING_IN_TURNS;
    }
    const bool few = favourites[i].when == FEW && request->deterministic;
    knobs_of.early_dq = knobs_of.persistent != FT_PERSISTENT && can_ask_for_sections(request) &&
                        favourites[i].when != FEW_SHORT &&
                        (few || early_dq_pays(request, arch, &knobs_of));
    *config = ft_config_make(&ft_wgmma_backward_family, &knobs_of);
    if (ft_config_is_legal(config, request, arch)) return true;
  }
  return false;
}

const struct ft_family ft_wgmma_backward_family = {
    .name = "wgmma_backward",
    .pass = FT_BACKWARD,
    .instructions = "wgmma",
    .target_suffix = "a",
    .template_name = "wgmma_backward.cu.in",
    .serves = serves,
    .schedule = ft_schedule_lpt,
    FT_FAMILY_TABLES,
    .plan = plan,
    .default_config = default_config,
};
