/* mma_backward.c: the gradients by mma.sync.
 * in -> out: request + config + arch -> budget, broken rules, the default config. */
#include "generator/families/mma_backward.h"

#include <string.h>

#include "generator/families/plan.h"
#include "generator/visibility.h"

FT_DEFINE_TABLES(FT_MMA_BACKWARD_KNOBS, FT_MMA_BACKWARD_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  (void)request, (void)arch; /* wherever anything does */
  return true;
}

/* ---- budget ---- */

/* Half of the warps sum dV up, the others dK; column_warps of each have the same keys. */
static void plan_roles(struct ft_mma_backward_budget *own, const struct ft_mma_backward_knobs *k) {
  own->key_warps = k->warps / 2 / k->column_warps;
  own->warp_keys = k->block_n / max_int(1, own->key_warps);
  own->part_queries = k->block_m / k->query_parts / k->column_warps;
}

/* dQ of a step, block_m x d, is shared out to all warps, so that rows and columns of a warp's
 * share, which it reads, are few. */
static int dq_rows_of(int d_pad, const struct ft_mma_backward_knobs *k) {
  int best = 0, least = 0;
  for (int rows = 16; rows <= k->block_m; rows *= 2) {
    const int row_warps = k->block_m / rows;
    if (k->block_m % rows != 0 || row_warps > k->warps) continue;
    const int column_warps = k->warps / row_warps;
    const int columns = round_up(d_pad / 16, column_warps) / column_warps * 16;
    if (best != 0 && rows + columns >= least) continue;
    best = rows;
    least = rows + columns;
  }
  return best;
}

/* K | V | Q stages | dO stages | P | dS | LSE and delta. */
static void plan_tiles(struct ft_budget *budget, struct ft_mma_backward_budget *own,
                       const struct ft_mma_backward_knobs *k) {
  own->q_bytes = k->block_m * own->qk_stride;
  own->do_bytes = k->block_m * own->v_stride;
  own->k_bytes = k->block_n * own->qk_stride;
  own->v_bytes = k->block_n * own->v_stride;
  own->p_bytes = k->block_n * own->p_stride;
  const int stats = k->block_m * 2 * 4;
  own->smem_k_offset = 0;
  own->smem_v_offset = own->smem_k_offset + own->k_bytes;
  own->smem_q_offset = own->smem_v_offset + own->v_bytes;
  own->smem_do_offset = own->smem_q_offset + k->stages * own->q_bytes;
  own->smem_p_offset = own->smem_do_offset + k->stages * own->do_bytes;
  own->smem_ds_offset = own->smem_p_offset + own->p_bytes;
  own->smem_stats_offset = own->smem_ds_offset + (k->deferred_dq ? 2 : 1) * own->p_bytes;
  budget->smem_bytes = own->smem_stats_offset + k->stages * stats;
}

/* The last kernel. It turns sums in fp32 into dQ: a warp takes one block of 16 x 16 after the
 * other. With FT_DQ_SECOND_PASS it has a warp for every 16 queries instead and walks over the keys;
 * its shared memory is Q | dO | K | V. */
static void plan_dq(const struct ft_budget *budget, struct ft_mma_backward_budget *own,
                    const struct ft_request *request, const struct ft_mma_backward_knobs *k) {
  own->dq_smem = own->q_bytes;
  own->dq_threads = budget->threads;
  own->dq_sums =
      k->dq_mode == FT_DQ_SECOND_PASS ? 0 : ft_dq_sums(request, k->dq_mode == FT_DQ_ORDERED);
  if (k->dq_mode != FT_DQ_SECOND_PASS) return;
  own->dq_threads = 32 * max_int(1, k->block_m / 16);
  own->dq_block_n = 64;
  while (own->dq_block_n > 16 && k->block_n % own->dq_block_n != 0) own->dq_block_n -= 16;
  own->dq_smem_do_offset = own->q_bytes;
  own->dq_smem_k_offset = own->dq_smem_do_offset + own->do_bytes;
  own->dq_smem_v_offset = own->dq_smem_k_offset + own->dq_block_n * own->qk_stride;
  own->dq_smem = own->dq_smem_v_offset + own->dq_block_n * own->v_stride;
}

static void plan_registers(struct ft_budget *budget, struct ft_mma_backward_budget *own,
                           const struct ft_request *request,
                           const struct ft_mma_backward_knobs *k) {
  enum { ADDRESSES = 40 };
  const int keys = own->warp_keys, depth = max_int(own->d_pad, own->dv_pad);
  const int words = ft_pair_registers(request->dtype);
  own->regs_dq = k->dq_mode == FT_DQ_SECOND_PASS ? 0 : k->block_m * own->d_pad / budget->threads;
  own->regs_kv = k->kv_in_regs ? words * keys * depth / 64 : 0;
  own->regs_s = keys * own->part_queries / 32;
  own->regs_p = words * keys * own->part_queries / 64;
  own->regs_sums = keys * depth / 32 / k->column_warps;
  budget->regs_estimate = own->regs_sums + own->regs_kv + max_int(own->regs_s, own->regs_dq) +
                          ADDRESSES + ft_part_registers(request->dtype);
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const struct ft_mma_backward_knobs *const k = ft_mma_backward_knobs(config);
  const int bytes = ft_dtype_bytes(request->dtype);
  struct ft_mma_backward_budget own = {.d_pad = round_up(request->head_dim, 16),
                                       .dv_pad = round_up(request->head_dim_v, 16),
                                       .p_stride = ft_row_stride(k->block_m, bytes)};
  own.qk_stride = ft_row_stride(own.d_pad, bytes);
  own.v_stride = ft_row_stride(own.dv_pad, bytes);
  own.dq_warp_rows = dq_rows_of(own.d_pad, k);
  budget->threads = 32 * k->warps;
  budget->ctas_per_sm = k->ctas_per_sm;
  budget->regs_limit = ft_registers_for(arch, budget->threads, k->ctas_per_sm);
  plan_roles(&own, k);
  plan_tiles(budget, &own, k);
  plan_dq(budget, &own, request, k);
  plan_registers(budget, &own, request, k);
  memcpy(budget->own, &own, sizeof own);
}

/* ---- rules ---- */

static const struct ft_mma_backward_knobs *knobs(const struct ft_rule_case *of) {
  return ft_mma_backward_knobs(of->config);
}

static const struct ft_mma_backward_budget *own_budget(const struct ft_rule_case *of) {
  return ft_mma_backward_budget(of->budget);
}

/* Roles and column_warps divide the warps, powers of two all of them. */
static bool warp_keys(const struct ft_rule_case *of) {
  const int keys = own_budget(of)->warp_keys, key_warps = own_budget(of)->key_warps;
  return is_power_of_two(knobs(of)->warps) && is_power_of_two(knobs(of)->column_warps) &&
         key_warps >= 1 && knobs(of)->block_n % key_warps == 0 && is_power_of_two(keys) &&
         is_within(keys, 16, 64);
}

static bool part_queries(const struct ft_rule_case *of) {
  const int queries = own_budget(of)->part_queries;
  return queries * knobs(of)->query_parts * knobs(of)->column_warps == knobs(of)->block_m &&
         queries % 16 == 0 && queries >= 16 && is_power_of_two(knobs(of)->block_m);
}

/* In each part of the queries, the warps with the same keys have one barrier, by which they
 * exchange P. Where a role has several of these warps, each role has one more, for its own warps.
 */
static bool named_barriers(const struct ft_rule_case *of) {
  const int each = knobs(of)->column_warps > 1 ? 3 : 1;
  return own_budget(of)->key_warps * knobs(of)->query_parts * each <= 15;
}

static bool no_cp_async(const struct ft_rule_case *of) {
  return of->arch->sm >= 80 || knobs(of)->stages == 1;
}

static bool deterministic(const struct ft_rule_case *of) {
  return !of->request->deterministic || knobs(of)->dq_mode != FT_DQ_ATOMIC;
}

static bool ordered_blocks(const struct ft_rule_case *of) {
  return knobs(of)->dq_mode != FT_DQ_ORDERED || ft_adds_have_an_order(of->request);
}

static bool ordered_dq(const struct ft_rule_case *of) {
  return knobs(of)->dq_mode != FT_DQ_ORDERED || of->request->deterministic;
}

/* A pass of its own doubles two of the products. */
static bool second_pass(const struct ft_rule_case *of) {
  return knobs(of)->dq_mode != FT_DQ_SECOND_PASS || of->request->deterministic;
}

static bool deferred_dq(const struct ft_rule_case *of) {
  return !knobs(of)->deferred_dq || knobs(of)->dq_mode != FT_DQ_SECOND_PASS;
}

static bool long_tile(const struct ft_rule_case *of) {
  return ft_half_a_tile_is_used(of->request->seqlen_q, knobs(of)->block_m);
}

/* Queries of a step and keys of a block, of which there may be few to work on, or room for few
 * beside big heads. */
static bool short_step(const struct ft_rule_case *of) {
  return knobs(of)->block_m >= 64 || of->request->mask_rows % 64 != 0 ||
         of->request->seqlen_q <= 32 || ft_head_dims(of->request) > 128;
}

static bool few_keys(const struct ft_rule_case *of) {
  return knobs(of)->block_n >= 64 || of->request->mask_cols % 64 != 0 ||
         of->request->head_dim + of->request->head_dim_v > 256;
}

static bool thin_parts(const struct ft_rule_case *of) {
  return knobs(of)->query_parts == 1 || own_budget(of)->part_queries >= 32;
}

static bool shared_keys(const struct ft_rule_case *of) {
  return knobs(of)->column_warps == 1 || own_budget(of)->warp_keys >= 32 ||
         knobs(of)->block_n < 32 || of->request->head_dim + of->request->head_dim_v > 256;
}

static bool few_warps(const struct ft_rule_case *of) {
  return knobs(of)->warps * knobs(of)->ctas_per_sm >= 8 || knobs(of)->block_n < 64;
}

#define READS(knob) FT_READS(mma_backward, knob)
static const struct ft_rule rules[] = {
    {"warp-keys", FT_CANNOT_RUN, warp_keys,
     "a warp has 16, 32 or 64 keys: whole mma tiles, of which the role's warps divide block_n",
     FT_READS_ANY},
    {"part-queries", FT_CANNOT_RUN, part_queries,
     "a warp makes scores of whole mma tiles of 16 queries at a time", FT_READS_ANY},
    {"named-barriers", FT_CANNOT_RUN, named_barriers,
     "a block has 15 of them besides that of all its threads", FT_READS_ANY},
    {"no-cp-async", FT_CANNOT_RUN, no_cp_async,
     "before sm_80 nothing is loaded in the background, so one stage", READS(stages)},
    {"deterministic", FT_CANNOT_RUN, deterministic,
     "atomic adds come in any order, and sums are rounded by it", READS(dq_mode)},
    {"ordered-mask", FT_CANNOT_RUN, ordered_blocks,
     "under a mask it is not known who adds to dQ before", READS(dq_mode)},
    {"deferred-dq", FT_CANNOT_RUN, deferred_dq,
     "without dQ in the main kernel there is nothing to be late", FT_READS_ANY},
    {"ordered-dq", FT_NOT_WORTH_TRYING, ordered_dq,
     "adds in order cost time for determinism's sake", READS(dq_mode)},
    {"second-pass", FT_NOT_WORTH_TRYING, second_pass,
     "a pass of its own is only worth its products for determinism", READS(dq_mode)},
    {"sum-registers", FT_NOT_WORTH_TRYING, ft_registers_suffice,
     "sums and scores must fit the registers left by the launch bounds", FT_READS_ANY},
    {"long-tile", FT_NOT_WORTH_TRYING, long_tile,
     "more than half of the rows would lie beyond the last query", FT_READS_ANY},
    {"short-step", FT_NOT_WORTH_TRYING, short_step,
     "few queries of a step do not pay for its barriers, unless there are few or heads are big",
     FT_READS_ANY},
    {"few-keys", FT_NOT_WORTH_TRYING, few_keys,
     "a block of few keys reloads Q and dO too often, unless heads are big", FT_READS_ANY},
    {"thin-parts", FT_NOT_WORTH_TRYING, thin_parts,
     "parts are for scores of many queries; each costs an exchange of P", FT_READS_ANY},
    {"shared-keys", FT_NOT_WORTH_TRYING, shared_keys,
     "warps share keys to have more of them in registers, not to have 16 each", FT_READS_ANY},
    {"few-warps", FT_NOT_WORTH_TRYING, few_warps, "two warps of a quarter hide what one waits for",
     FT_READS_ANY},
};

/* ---- the default ---- */

/* Best first: key blocks whose dK and dV fit the registers; the rows below a GPU's limits come
 * later. Measured on an H200 are those of fp32 and tf32 and those for masks of 64 columns
 * (bench/ledger.md). */
struct favourite {
  struct ft_favoured of;
  struct ft_mma_backward_knobs knobs; /* ctas_per_sm = 0: one */
};
static const struct favourite favourites[] = {
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(128, 128), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 2, .kv_in_regs = 1,
      .deferred_dq = 1}},
    /* sm_86, sm_89 */
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(64, 128), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1,
      .kv_in_regs = 1}},
    /* Masks of 64 columns. */
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 2, .column_warps = 2, .query_parts = 1,
      .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1, .kv_in_regs = 1,
      .deferred_dq = 1}},
    /* sm_75 */
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 1, .column_warps = 1, .query_parts = 1}},
    {FT_FAVOURED(2, 128, FT_ALWAYS),
     {TILE(64, 128), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1,
      .deferred_dq = 1}},
    /* sm_80 */
    {FT_FAVOURED(2, 128, FT_ALWAYS),
     {TILE(64, 128), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1}},
    /* Masks of 64 columns. */
    {FT_FAVOURED(2, 128, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 2, .column_warps = 2, .query_parts = 1,
      .deferred_dq = 1}},
    /* sm_86, sm_89 */
    {FT_FAVOURED(2, 128, FT_ALWAYS),
     {TILE(32, 64), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1,
      .deferred_dq = 1}},
    /* sm_75 */
    {FT_FAVOURED(2, 128, FT_ALWAYS),
     {TILE(32, 64), .warps = 8, .stages = 1, .column_warps = 1, .query_parts = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 2, .column_warps = 2, .query_parts = 1,
      .deferred_dq = 1}},
    /* sm_80 */
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 1, .column_warps = 2, .query_parts = 1}},
    /* sm_86, sm_89 */
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(32, 32), .warps = 8, .stages = 1, .column_warps = 2, .query_parts = 1}},
    /* sm_75 */
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(16, 32), .warps = 4, .stages = 1, .column_warps = 1, .query_parts = 1}},
    /* Of fp32 and tf32, whose tiles take twice the room. */
    {FT_FAVOURED(4, 64, FT_OF_TF32),
     {TILE(32, 256), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1}},
    {FT_FAVOURED(4, 64, FT_OF_TF32),
     {TILE(64, 128), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1,
      .kv_in_regs = 1}},
    {FT_FAVOURED(4, 128, FT_OF_TF32),
     {TILE(32, 128), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1}},
    {FT_FAVOURED(4, 64, FT_VARIED),
     {TILE(32, 64), .warps = 8, .stages = 2, .column_warps = 2, .query_parts = 1,
      .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_ALWAYS),
     {TILE(32, 128), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1}},
    /* Masks of 64 columns. */
    {FT_FAVOURED(4, 64, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1}},
    /* sm_86, sm_89 */
    {FT_FAVOURED(4, 64, FT_ALWAYS),
     {TILE(32, 64), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1}},
    {FT_FAVOURED(4, 128, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 2, .column_warps = 2, .query_parts = 1}},
    {FT_FAVOURED(4, 128, FT_ALWAYS),
     {TILE(64, 64), .warps = 8, .stages = 1, .column_warps = 2, .query_parts = 1,
      .deferred_dq = 1}},
    /* sm_80 */
    {FT_FAVOURED(4, 128, FT_ALWAYS),
     {TILE(32, 64), .warps = 8, .stages = 2, .column_warps = 1, .query_parts = 1}},
    {FT_FAVOURED(4, 256, FT_ALWAYS),
     {TILE(32, 32), .warps = 8, .stages = 1, .column_warps = 2, .query_parts = 1}},
};

/* Before those, where their key blocks are so few that multiprocessors are idle. */
static const struct favourite of_few_blocks[] = {
    {FT_FAVOURED(4, 64, FT_ALWAYS),
     {TILE(32, 64), .warps = 8, .stages = 2, .column_warps = 2, .query_parts = 1, .kv_in_regs = 1,
      .deferred_dq = 1}},
    {FT_FAVOURED(4, 128, FT_OF_TF32),
     {TILE(32, 64), .warps = 8, .stages = 2, .column_warps = 2, .query_parts = 1, .kv_in_regs = 1}},
};

/* How dQ is summed where the request asks for determinism. */
static int deterministic_dq(const struct ft_request *request) {
  if (!request->deterministic) return FT_DQ_ATOMIC;
  return ft_adds_have_an_order(request) ? FT_DQ_ORDERED : FT_DQ_SECOND_PASS;
}

/* Of a multiprocessor. Without dQ blocks of few keys leave registers for a second one. */
static int most_blocks(const struct ft_mma_backward_knobs *knobs) {
  enum { FEW_KEYS = 64 };
  return knobs->dq_mode == FT_DQ_SECOND_PASS && knobs->block_n <= FEW_KEYS ? 2 : knobs->ctas_per_sm;
}

static bool take_first(const struct favourite *list, int count, const struct ft_request *request,
                       const struct ft_arch *arch, struct ft_config *config) {
  for (int i = 0; i < count; ++i) {
    if (!ft_favourite_counts(list[i].of, request)) continue;
    struct ft_mma_backward_knobs knobs_of = list[i].knobs;
    if (knobs_of.ctas_per_sm == 0) knobs_of.ctas_per_sm = 1;
    if (request->score) knobs_of.kv_in_regs = 0; /* the score function needs the registers */
    knobs_of.dq_mode = deterministic_dq(request);
    if (knobs_of.dq_mode == FT_DQ_SECOND_PASS) knobs_of.deferred_dq = 0;
    const int own = knobs_of.ctas_per_sm, most = most_blocks(&knobs_of);
    for (knobs_of.ctas_per_sm = most; knobs_of.ctas_per_sm >= own; --knobs_of.ctas_per_sm) {
      *config = ft_config_make(&ft_mma_backward_family, &knobs_of);
      if (ft_config_is_legal(config, request, arch)) return true;
    }
  }
  return false;
}

static bool leaves_idle(const struct ft_request *request, const struct ft_arch *arch,
                        const struct ft_config *config) {
  const int64_t keys = ft_config_block_n(config), of_head = (request->seqlen_k + keys - 1) / keys;
  const double blocks = (double)request->batch * request->heads_kv * (double)of_head;
  return blocks > 0 && blocks < arch->sm_count;
}

static bool take_favourite(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  struct ft_config narrow;
  const bool has_one = take_first(favourites, FT_COUNT(favourites), request, arch, config);
  if (has_one && leaves_idle(request, arch, config) &&
      take_first(of_few_blocks, FT_COUNT(of_few_blocks), request, arch, &narrow) &&
      ft_config_block_n(&narrow) < ft_config_block_n(config))
    *config = narrow;
  return has_one;
}

/* For what is left: the largest tile, 16 keys for a warp. */
static bool climb_down(const struct ft_request *request, const struct ft_arch *arch,
                       struct ft_config *config) {
  static const int sizes[] = {64, 32, 16};
  enum { SIZES = FT_COUNT(sizes) };
  for (int size = 0; size < SIZES * SIZES; ++size)
    for (int columns = 2; columns >= 1; --columns)
      for (int stages = arch->sm >= 80 ? 2 : 1; stages >= 1; --stages) {
        const int keys = sizes[size % SIZES];
        *config =
            FT_CONFIG(mma_backward, .block_m = sizes[size / SIZES], .block_n = keys,
                      .warps = keys / 16 * 2 * columns, .stages = stages, .column_warps = columns,
                      .query_parts = 1, .dq_mode = deterministic_dq(request), .ctas_per_sm = 1);
        if (ft_config_is_legal(config, request, arch)) return true;
      }
  return false;
}

static bool default_config(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  return take_favourite(request, arch, config) || climb_down(request, arch, config);
}

const struct ft_family ft_mma_backward_family = {
    .name = "mma_backward",
    .pass = FT_BACKWARD,
    .instructions = "mma",
    .target_suffix = "",
    .template_name = "mma_backward.cu.in",
    .serves = serves,
    .schedule = ft_schedule_lpt,
    FT_FAMILY_TABLES,
    .plan = plan,
    .default_config = default_config,
};
