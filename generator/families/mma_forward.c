/* mma_forward.c: the forward by mma.sync.
 * in -> out: request + config + arch -> budget, broken rules, the default config. */
#include "generator/families/mma_forward.h"

#include <string.h>

#include "generator/families/plan.h"

FT_DEFINE_TABLES(FT_MMA_FORWARD_KNOBS, FT_MMA_FORWARD_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { WITH_E4M3 = 89 };
  return request->dtype != FT_E4M3 || arch->sm >= WITH_E4M3;
}

static enum ft_schedule schedule(const struct ft_request *request, const struct ft_config *config) {
  if (request->ragged) return FT_SCHEDULE_RAGGED;
  if (ft_mma_forward_knobs(config)->split_keys > 1) return FT_SCHEDULE_CLUSTER;
  if (ft_mma_forward_knobs(config)->split_keys) return FT_SCHEDULE_SPLIT;
  return ft_schedule_lpt(request, config);
}

/* Of a product: what its operands have in common of columns or keys. */
static int depth_of(const struct ft_request *request) {
  return request->dtype == FT_E4M3 ? 32 : 16;
}

/* ---- budget ---- */

/* Q, then the stages of K, then those of V. Q is read once into registers before the first K and V
 * arrive, or stays beside them. O is staged where they were. */
static void plan_shared_memory(struct ft_budget *budget, struct ft_mma_forward_budget *own,
                               const struct ft_mma_forward_knobs *k) {
  own->q_bytes = k->block_m * own->q_stride;
  own->k_bytes = k->block_n * own->k_stride;
  own->v_bytes = k->block_n * own->v_stride;
  own->o_bytes = k->block_m * own->o_stride;
  own->smem_k_offset = k->q_in_regs ? 0 : own->q_bytes;
  own->smem_v_offset = own->smem_k_offset + k->stages * own->k_bytes;
  const int loop = max_int(own->q_bytes, own->smem_v_offset + k->stages * own->v_bytes);
  const int part = ft_part_bytes(k->block_m, own->o_columns);
  own->smem_part_offset = k->key_warps * part;
  const int parts = own->smem_part_offset + (k->split_keys > 1 ? part : 0);
  budget->smem_bytes = max_int(loop, k->key_warps ? parts : own->o_bytes);
}

/* A warp holds a fragment of R x C values in 32 threads: fp32 takes R * C / 32 registers of each,
 * 16-bit types half of that, e4m3 a quarter. */
static void plan_registers(struct ft_budget *budget, struct ft_mma_forward_budget *own,
                           const struct ft_request *request, const struct ft_mma_forward_knobs *k) {
  enum { ADDRESSES_AND_STATISTICS = 40 }; /* pointers, loop state, row_max and row_sum */
  const int rows = own->warp_rows, bytes = ft_dtype_bytes(request->dtype);
  own->regs_q = k->q_in_regs ? bytes * rows * own->d_pad / 128 : 0;
  const int keys = k->block_n / max_int(k->key_warps, 1); /* of a warp */
  own->regs_s = rows * keys / 32 * (k->overlap_qk ? 2 : 1);
  own->regs_p = bytes * rows * keys / 128;
  own->regs_o = rows * own->dv_pad / 32;
  /* Without overlap P takes over the registers of S piece by piece. */
  budget->regs_estimate = own->regs_q + own->regs_o + own->regs_s +
                          (k->overlap_qk ? own->regs_p : 0) + ADDRESSES_AND_STATISTICS +
                          ft_part_registers(request->dtype);
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  const struct ft_mma_forward_knobs *const k = ft_mma_forward_knobs(config);
  struct ft_mma_forward_budget own = {.d_pad = round_up(request->head_dim, depth_of(request)),
                                      .dv_pad = round_up(request->head_dim_v, 16),
                                      .o_columns = request->head_dim_v,
                                      .warp_rows =
                                          k->block_m / k->warps * max_int(k->key_warps, 1)};
  const int bytes = ft_dtype_bytes(request->dtype), of_kv = ft_dtype_bytes(ft_kv_dtype(request));
  own.q_stride = ft_row_stride(own.d_pad, bytes);
  own.k_stride = ft_row_stride(own.d_pad, of_kv);
  own.v_stride = ft_row_stride(own.dv_pad, of_kv);
  own.o_stride = ft_row_stride(own.dv_pad, ft_dtype_bytes(ft_operand_dtype(request)));
  budget->threads = 32 * k->warps;
  budget->ctas_per_sm = k->ctas_per_sm;
  budget->regs_limit = ft_registers_for(arch, budget->threads, k->ctas_per_sm);
  plan_shared_memory(budget, &own, k);
  plan_registers(budget, &own, request, k);
  memcpy(budget->own, &own, sizeof own);
}

int ft_mma_forward_piece(const struct ft_request *request, const struct ft_budget *budget) {
  const struct ft_mma_forward_budget *const own = ft_mma_forward_budget(budget);
  const int bytes = ft_dtype_bytes(ft_kv_dtype(request));
  return min_int(ft_copied_piece(own->d_pad, bytes), ft_copied_piece(own->dv_pad, bytes));
}

void ft_mma_forward_walks(struct ft_walks *walks, const struct ft_request *request,
                          const struct ft_config *config, const struct ft_budget *budget,
                          const struct ft_arch *arch) {
  const struct ft_mma_forward_budget *const own = ft_mma_forward_budget(budget);
  const int split = ft_mma_forward_knobs(config)->split_keys;
  walks->cluster = split > 1 ? split : 0;
  walks->blocks_per_sm = ft_budget_occupancy(budget, arch, ft_budget_registers(budget));
  walks->block_m = ft_config_block_m(config);
  walks->block_n = ft_config_block_n(config);
  walks->of_bytes = ft_kv_dtype(request) == FT_E4M3;
  walks->piece = ft_mma_forward_piece(request, budget);
  walks->head_dim = own->d_pad;
  walks->head_dim_v = own->dv_pad;
  walks->mma_flops_per_clk = ft_mma_flops_per_clk(arch, request->dtype);
}

/* ---- rules ---- */

static const struct ft_mma_forward_knobs *knobs(const struct ft_rule_case *of) {
  return ft_mma_forward_knobs(of->config);
}

static int packed_of(const struct ft_request *request, const struct ft_config *config) {
  if (request->heads_kv == 0) return 1;
  return ft_packed_heads(config, request->heads_q / request->heads_kv, request->seqlen_q);
}

static bool warp_rows(const struct ft_rule_case *of) {
  const int rows = ft_mma_forward_budget(of->budget)->warp_rows;
  return knobs(of)->block_m * max_int(knobs(of)->key_warps, 1) % knobs(of)->warps == 0 &&
         rows % 16 == 0 && is_within(rows, 16, 64);
}

static bool no_cp_async(const struct ft_rule_case *of) {
  return of->arch->sm >= 80 || knobs(of)->stages == 1;
}

static bool overlap(const struct ft_rule_case *of) {
  return !knobs(of)->overlap_qk || knobs(of)->stages >= 2;
}

static bool draw_early(const struct ft_rule_case *of) {
  return !knobs(of)->draw_early || (of->request->dropout && !knobs(of)->overlap_qk);
}

/* The list is of whole tiles of single heads. */
static bool ragged(const struct ft_rule_case *of) {
  return !of->request->ragged ||
         (!knobs(of)->split_keys && !knobs(of)->key_warps && !knobs(of)->pack_gqa);
}

/* Each warp has whole mma tiles of a step's keys. */
static bool key_warps(const struct ft_rule_case *of) {
  const struct ft_mma_forward_knobs *const k = knobs(of);
  return k->key_warps == 0 || (k->key_warps == k->warps && k->block_n % (16 * k->key_warps) == 0 &&
                               k->stages >= 2 && !k->overlap_qk && !k->draw_early);
}

/* Dropout of packed heads draws for 16 rows of a warp, and drops in words of two 16-bit elements.
 */
static bool pack_gqa(const struct ft_rule_case *of) {
  const struct ft_mma_forward_knobs *const k = knobs(of);
  return !k->pack_gqa ||
         (k->key_warps > 0 && k->block_m == 16 && ft_dtype_bytes(of->request->dtype) == 2);
}

static bool cluster_parts(const struct ft_rule_case *of) {
  const int parts = knobs(of)->split_keys;
  return parts <= 1 || (of->arch->sm >= 90 && is_power_of_two(parts) && knobs(of)->key_warps > 0);
}

static bool whole_depths(const struct ft_rule_case *of) {
  const int keys = knobs(of)->block_n / max_int(knobs(of)->key_warps, 1); /* of a warp */
  return of->request->dtype != FT_E4M3 || keys % depth_of(of->request) == 0;
}

static bool descale_blocks(const struct ft_rule_case *of) {
  const int rows = of->request->descale_rows;
  const int keys = knobs(of)->block_n / max_int(knobs(of)->key_warps, 1);
  return rows % keys == 0 && rows % ft_mma_forward_budget(of->budget)->warp_rows == 0;
}

static bool two_level(const struct ft_rule_case *of) {
  return !knobs(of)->two_level || of->request->dtype == FT_E4M3;
}

static bool packed_group(const struct ft_rule_case *of) {
  return !knobs(of)->pack_gqa || of->request->heads_kv == 0 ||
         of->request->heads_q / of->request->heads_kv % 2 == 0;
}

/* With more rows than two tiles have, each warp can have rows of its own. */
static bool shared_rows(const struct ft_rule_case *of) {
  const int64_t rows = of->request->seqlen_q * packed_of(of->request, of->config);
  return knobs(of)->key_warps == 0 || rows <= 2 * knobs(of)->block_m;
}

static bool enough_tiles(const struct ft_rule_case *of) {
  const int64_t slots = (int64_t)of->arch->sm_count * knobs(of)->ctas_per_sm;
  const int packed = packed_of(of->request, of->config);
  return !knobs(of)->split_keys || ft_split_may_pay(of->request, packed, knobs(of)->block_m, slots);
}

/* Rows of queries that a block can use: of the mask's block, of the request where its length is
 * known. */
static bool short_tile(const struct ft_rule_case *of) {
  const int mask_rows = of->request->mask_rows;
  return knobs(of)->block_m >= 64 || (mask_rows != 0 && mask_rows % 64 != 0) ||
         of->request->seqlen_q <= 32;
}

static bool long_tile(const struct ft_rule_case *of) {
  return ft_half_a_tile_is_used(of->request->seqlen_q, knobs(of)->block_m);
}

static bool idle_quarters(const struct ft_rule_case *of) {
  return knobs(of)->block_m < 64 || knobs(of)->warps * knobs(of)->ctas_per_sm >= 4;
}

static bool flat_tile(const struct ft_rule_case *of) {
  return knobs(of)->block_n <= 2 * knobs(of)->block_m || knobs(of)->block_m < 64;
}

/* Big heads may have no room for more than 16 keys; a fine mask allows no more. */
static bool thin_tile(const struct ft_rule_case *of) {
  return knobs(of)->block_n >= 32 || of->request->mask_cols % 32 != 0 ||
         ft_head_dims(of->request) > 256;
}

static const struct ft_rule rules[] = {
    {"warp-rows", FT_CANNOT_RUN, warp_rows,
     "a warp owns 16, 32, 48 or 64 rows: whole mma tiles whose statistics fit"},
    {"no-cp-async", FT_CANNOT_RUN, no_cp_async,
     "before sm_80 nothing is loaded in the background, so one stage"},
    {"overlap", FT_CANNOT_RUN, overlap, "issuing the next S early needs the next K: two stages"},
    {"draw-early", FT_CANNOT_RUN, draw_early,
     "without dropout nothing is drawn; with overlap Q K^T has company already"},
    {"ragged", FT_CANNOT_RUN, ragged,
     "of sequences of different lengths keys are not divided up, and heads are not packed"},
    {"key-warps", FT_CANNOT_RUN, key_warps,
     "warps that share rows are all of a block, and each takes 16, 32 or more keys of every step"},
    {"pack-gqa", FT_CANNOT_RUN, pack_gqa,
     "heads of 16-bit types are packed into 16 rows, which all warps of a block share"},
    {"whole-depths", FT_CANNOT_RUN, whole_depths,
     "with e4m3 P V takes a warp's keys in steps of 32, the k of its mma"},
    {"descale-blocks", FT_CANNOT_RUN, descale_blocks,
     "a warp's queries have one descale, and so have its keys of a step"},
    {"two-level", FT_CANNOT_RUN, two_level, "sums of other products are fp32 already"},
    {"cluster-parts", FT_CANNOT_RUN, cluster_parts,
     "parts that a cluster puts together are 2, 4, 8 or 16, of rows that a block's warps share, "
     "from sm_90 on"},
    {"packed-group", FT_NOT_WORTH_TRYING, packed_group,
     "heads are packed by powers of two, which must divide the group"},
    {"shared-rows", FT_NOT_WORTH_TRYING, shared_rows,
     "warps that share rows read Q and merge O once for each: where there are few rows"},
    {"enough-tiles", FT_NOT_WORTH_TRYING, enough_tiles,
     "the keys of a tile are divided up where the tiles do not fill the GPU"},
    {"register-limit", FT_NOT_WORTH_TRYING, ft_registers_suffice,
     "the fragments must fit the registers left by the launch bounds"},
    {"short-tile", FT_NOT_WORTH_TRYING, short_tile,
     "few rows reload K and V too often, unless there are few to work on"},
    {"long-tile", FT_NOT_WORTH_TRYING, long_tile,
     "more than half of the rows would lie beyond the last query"},
    {"idle-quarters", FT_NOT_WORTH_TRYING, idle_quarters,
     "fewer than four warps leave a quarter of the multiprocessor without work"},
    {"flat-tile", FT_NOT_WORTH_TRYING, flat_tile,
     "many more keys than queries cost registers for S and save no traffic"},
    {"thin-tile", FT_NOT_WORTH_TRYING, thin_tile,
     "steps of 16 keys spend more on barriers and statistics than on products"},
};

/* ---- the default ---- */

/* Best first. Bigger heads need more registers for O, so rows per warp shrink; the rows below a
 * GPU's limits in shared memory come later. */
struct favourite {
  struct ft_favoured of;
  struct ft_mma_forward_knobs knobs;
};
static const struct favourite favourites[] = {
    {FT_FAVOURED(2, 64, FT_ALWAYS), {TILE(128, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    /* sm_86, sm_89: room for a second block. */
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(128, 64), .warps = 4, .stages = 2, .q_in_regs = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(128, 64), .warps = 4, .stages = 1, .ctas_per_sm = 1}}, /* sm_75 */
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(128, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
    /* Masks of 64 rows, short queries. */
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(128, 64), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(64, 32), .warps = 4, .stages = 1, .ctas_per_sm = 1, .q_in_regs = 1}}, /* sm_75 */
    /* Of fp32 and tf32, whose tiles take twice the room, and whose products, of fp32, six fragments
     * each. The order is an H200's (bench/ledger.md). */
    {FT_FAVOURED(4, 64, FT_OF_TF32),
     {TILE(128, 64), .warps = 4, .stages = 2, .q_in_regs = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 128, FT_OF_TF32), {TILE(128, 32), .warps = 4, .stages = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_VARIED), {TILE(64, 48), .warps = 4, .stages = 3, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_ALWAYS),
     {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}}, /* sm_86, sm_89 */
    {FT_FAVOURED(4, 128, FT_VARIED), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    /* Dropout draws the bits of 64 keys at once, and for steps of 16 four times. */
    {FT_FAVOURED(4, 128, FT_PLAIN), {TILE(128, 16), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 128, FT_ALWAYS), {TILE(128, 32), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 128, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    /* Of e4m3. Estimates for sm_89 and sm_120: the largest tiles whose registers ptxas does not
     * spill. */
    {FT_FAVOURED(1, 64, FT_ALWAYS),
     {TILE(128, 64), .warps = 4, .stages = 2, .q_in_regs = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 96, FT_ALWAYS), {TILE(128, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 128, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    /* Masks of 64 rows, short queries. */
    {FT_FAVOURED(1, 128, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(128, 64), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
};

/* Of e4m3 where it is turned into fp16, for which operands take registers. */
static const struct favourite converted[] = {
    {FT_FAVOURED(1, 64, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 192, FT_ALWAYS), {TILE(128, 32), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(128, 64), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
};

static bool take_favourite(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  const bool converts = request->dtype == FT_E4M3 && !ft_has_mma_of_e4m3(arch);
  const struct favourite *const list = converts ? converted : favourites;
  const int count = converts ? FT_COUNT(converted) : FT_COUNT(favourites);
  for (int i = 0; i < count; ++i) {
    if (!ft_favourite_counts(list[i].of, request)) continue;
    *config = ft_config_make(&ft_mma_forward_family, &list[i].knobs);
    if (ft_config_is_legal(config, request, arch)) return true;
  }
  return false;
}

/* For what is left (fine masks, short queries, small shared memory): one warp per 16 rows, which
 * always fits the registers, the largest tile first. */
static bool climb_down(const struct ft_request *request, const struct ft_arch *arch,
                       struct ft_config *config) {
  static const int rows[] = {64, 32, 16}, columns[] = {64, 32, 48, 16};
  for (int m = 0; m < FT_COUNT(rows); ++m)
    for (int n = 0; n < FT_COUNT(columns); ++n)
      for (int stages = arch->sm >= 80 ? 2 : 1; stages >= 1; --stages) {
        *config = FT_CONFIG(mma_forward, .block_m = rows[m], .block_n = columns[n],
                            .warps = rows[m] / 16, .stages = stages, .ctas_per_sm = 1);
        if (ft_config_is_legal(config, request, arch)) return true;
      }
  return false;
}

/* Microseconds, estimated, of a config for a request with lengths. */
static double estimate(const struct ft_request *request, const struct ft_arch *arch,
                       const struct ft_config *config) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  struct ft_walks walks = {0};
  ft_mma_forward_walks(&walks, request, config, &budget, arch);
  ft_walks_of_request(&walks, request, packed_of(request, config));
  return ft_mma_forward_knobs(config)->split_keys ? ft_key_parts_of(&walks, arch).us
                                                  : ft_key_parts_divided(&walks, arch, 1).us;
}

/* Where the host does not know the lengths, clusters are even work if none waits for another. */
static bool clusters_run_at_once(const struct ft_request *request, const struct ft_arch *arch,
                                 const struct ft_config *config) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  struct ft_walks walks = {0};
  ft_mma_forward_walks(&walks, request, config, &budget, arch);
  ft_walks_of_request(&walks, request, packed_of(request, config));
  return walks.tiles <= ft_clusters_at_once(&walks, arch);
}

/* Configs for few rows. Of equal estimates the earlier one is taken: first come blocks that load
 * many keys ahead, then blocks of which several share a multiprocessor. The last two have no
 * cluster: if one of them is the fastest, none of these configs is the default. */
static const struct ft_mma_forward_knobs of_few_rows[] = {
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 4, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
};

/* The same of K and V in e4m3, of whose steps each has half the bytes. What turns them into
 * operands takes issue slots: more keys of a step, and blocks that share a multiprocessor. In the
 * order that an H200 showed for whole walks, which come first (bench/ledger.md). No other family
 * has to be beaten. */
static const struct ft_mma_forward_knobs of_few_rows_cached[] = {
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 2, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 4, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 4},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
};

/* The same with Q in e4m3, too: heads are not packed, and each warp takes 32 keys. */
static const struct ft_mma_forward_knobs of_few_rows_e4m3[] = {
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 2},
    {TILE(16, 128), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 2},
};

/* Of the dtypes of Q, K and V. */
static int few_rows_of(const struct ft_mma_forward_knobs **list, const struct ft_request *request) {
  const bool all_e4m3 = request->dtype == FT_E4M3;
  if (ft_kv_dtype(request) != FT_E4M3) {
    *list = of_few_rows;
    return FT_COUNT(of_few_rows);
  }
  *list = all_e4m3 ? of_few_rows_e4m3 : of_few_rows_cached;
  return all_e4m3 ? FT_COUNT(of_few_rows_e4m3) : FT_COUNT(of_few_rows_cached);
}

bool ft_mma_forward_of_few_rows(const struct ft_request *request, const struct ft_arch *arch,
                                struct ft_config *config, double *us) {
  enum { WITH_WGMMA = 90, NARROW = 64 }; /* wider heads load as much in a step by twice the warps */
  static const double CLEARLY = 0.95; /* less, of two estimates; the earlier loads further ahead */
  /* By mma.sync alone; of Q in e4m3, too, where wgmma's family has no default. */
  const bool cached = ft_kv_dtype(request) == FT_E4M3;
  if (request->seqlen_q == 0 || request->heads_kv == 0 || request->ragged) return false;
  const bool alone = cached || ft_dtype_is_fp32(request->dtype) || arch->sm != WITH_WGMMA;
  if (request->pages > 0 && !alone)
    return false; /* wgmma's blocks have equal shares of all steps, however long the walks are */
  const bool even = request->heads_q / request->heads_kv % 2 == 0;
  double least = 0;
  const struct ft_mma_forward_knobs *list;
  const int count = few_rows_of(&list, request);
  for (int n = 0; n < count; ++n) {
    struct ft_mma_forward_knobs knobs_of = list[n];
    knobs_of.pack_gqa = even && ft_dtype_bytes(request->dtype) == 2;
    struct ft_config few = ft_config_make(&ft_mma_forward_family, &knobs_of);
    /* Where the rows of all heads are too many, each head has its blocks. */
    if (request->seqlen_q * packed_of(request, &few) > knobs_of.block_m) {
      knobs_of.pack_gqa = 0;
      few = ft_config_make(&ft_mma_forward_family, &knobs_of);
    }
    if (request->seqlen_q * packed_of(request, &few) > knobs_of.block_m) return false;
    if (!ft_config_is_legal(&few, request, arch)) continue;
    if (list == of_few_rows && n == 0 && max_int(request->head_dim, request->head_dim_v) > NARROW)
      continue;
    if (request->pages > 0 && knobs_of.split_keys > 1 && !clusters_run_at_once(request, arch, &few))
      continue;
    const double estimated = estimate(request, arch, &few);
    if (least > 0 && estimated >= (cached ? 1 : CLEARLY) * least) continue;
    least = estimated;
    *config = few;
  }
  *us = least;
  return least > 0 && (alone || ft_mma_forward_knobs(config)->split_keys > 1);
}

/* Where the tiles leave blocks without work, they are divided. */
static void divide_few(const struct ft_request *request, const struct ft_arch *arch,
                       struct ft_config *config) {
  struct ft_mma_forward_knobs knobs_of = *ft_mma_forward_knobs(config);
  knobs_of.split_keys = 1;
  const struct ft_config split = ft_config_make(&ft_mma_forward_family, &knobs_of);
  if (request->seqlen_q == 0 || !ft_config_is_legal(&split, request, arch)) return;
  const struct ft_budget budget = ft_budget_of(request, &split, arch);
  struct ft_walks walks = {0};
  ft_mma_forward_walks(&walks, request, &split, &budget, arch);
  ft_walks_of_request(&walks, request, 1);
  if (ft_key_parts_of(&walks, arch).most > 1) *config = split;
}

static bool default_config(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  double us;
  if (ft_mma_forward_of_few_rows(request, arch, config, &us)) return true;
  if (!take_favourite(request, arch, config) && !climb_down(request, arch, config)) return false;
  divide_few(request, arch, config);
  return true;
}

const struct ft_family ft_mma_forward_family = {
    .name = "mma_forward",
    .pass = FT_FORWARD,
    .instructions = "mma",
    .target_suffix = "",
    .template_name = "mma_forward.cu.in",
    .serves = serves,
    .schedule = schedule,
    FT_FAMILY_TABLES,
    .plan = plan,
    .default_config = default_config,
};
