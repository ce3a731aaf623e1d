/* mma_forward.c: the forward by mma.sync.
 * in -> out: request + config + arch -> budget, broken rules. */
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
  if (ft_mma_forward_knobs(config)->split_keys)
    return request->pages > 0 ? FT_SCHEDULE_STREAM : FT_SCHEDULE_SPLIT;
  return ft_schedule_lpt(request, config);
}

/* The k of a product: how many columns of Q and K, or keys of P and V, it takes at once. */
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
  const struct ft_mma_forward_knobs *const k = ft_mma_forward_knobs(config);
  const enum ft_dtype kv_dtype = ft_kv_dtype(request);
  walks->cluster = k->split_keys > 1 ? k->split_keys : 0;
  walks->mixed = request->pages > 0 && request->batch != 1;
  walks->shared = schedule(request, config) == FT_SCHEDULE_STREAM;
  /* Equal shares are of blocks that are all resident, however many registers the compiler takes. */
  const int registers = walks->shared ? budget->regs_limit : ft_budget_registers(budget);
  walks->blocks_per_sm = ft_budget_occupancy(budget, arch, registers);
  walks->block_m = ft_config_block_m(config);
  walks->block_n = ft_config_block_n(config);
  walks->bytes = ft_dtype_bytes(kv_dtype);
  walks->converts = kv_dtype == FT_E4M3;
  walks->stages = k->stages;
  walks->warps = k->warps;
  walks->piece = ft_mma_forward_piece(request, budget);
  walks->head_dim = own->d_pad;
  walks->head_dim_v = own->dv_pad;
  walks->mma_flops_per_clk = ft_mma_flops_per_clk(arch, request->dtype);
}

struct ft_walks ft_mma_forward_walks_of(const struct ft_request *request,
                                        const struct ft_config *config,
                                        const struct ft_arch *arch) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  struct ft_walks walks = {0};
  ft_mma_forward_walks(&walks, request, config, &budget, arch);
  ft_walks_of_request(&walks, request, ft_pack_of(config, request));
  return walks;
}

static double us_of(const struct ft_walks *walks, const struct ft_config *config,
                    const struct ft_arch *arch) {
  return ft_mma_forward_knobs(config)->split_keys ? ft_key_parts_of(walks, arch).us
                                                  : ft_key_parts_divided(walks, arch, 1).us;
}

/* Where only the device knows the lengths, they may be mixed or equal: the mean of both. */
double ft_mma_forward_estimate(const struct ft_request *request, const struct ft_config *config,
                               const struct ft_arch *arch) {
  struct ft_walks walks = ft_mma_forward_walks_of(request, config, arch);
  const double us = us_of(&walks, config, arch);
  if (!walks.mixed) return us;
  walks.mixed = false;
  return (us + us_of(&walks, config, arch)) / 2;
}

/* ---- rules ---- */

static const struct ft_mma_forward_knobs *knobs(const struct ft_rule_case *of) {
  return ft_mma_forward_knobs(of->config);
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

/* With more rows than two tiles have, each warp can have rows of its own. */
static bool shared_rows(const struct ft_rule_case *of) {
  const int64_t rows = of->request->seqlen_q << ft_pack_of(of->config, of->request).bits;
  return knobs(of)->key_warps == 0 || rows <= 2 * knobs(of)->block_m;
}

/* Few queries on K and V in pages: only the device knows how many keys each sequence has. Ragged
 * requests are left out, because their keys are never divided. */
static bool has_mixed_walks(const struct ft_rule_case *of) {
  enum { FEW_ROWS = 64 };
  const int64_t rows = of->request->seqlen_q << ft_pack_of(of->config, of->request).bits;
  return of->request->pages > 0 && !of->request->ragged && of->request->batch != 1 &&
         of->request->heads_kv > 0 && rows > 0 && rows <= FEW_ROWS;
}

static bool shared_steps(const struct ft_rule_case *of) {
  static const double CLEARLY = 1.1;
  struct ft_mma_forward_knobs shares = *knobs(of);
  if (shares.split_keys || !has_mixed_walks(of)) return true;
  shares.split_keys = 1;
  const struct ft_config shared = ft_config_make(&ft_mma_forward_family, &shares);
  return ft_mma_forward_estimate(of->request, of->config, of->arch) <=
         CLEARLY * ft_mma_forward_estimate(of->request, &shared, of->arch);
}

static bool enough_tiles(const struct ft_rule_case *of) {
  const int64_t slots = (int64_t)of->arch->sm_count * knobs(of)->ctas_per_sm;
  const struct ft_pack pack = ft_pack_of(of->config, of->request);
  const bool shares = knobs(of)->split_keys == 1 && has_mixed_walks(of);
  return !knobs(of)->split_keys || shares ||
         ft_split_may_pay(of->request, pack, knobs(of)->block_m, slots);
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

#define READS(knob) FT_READS(mma_forward, knob)
static const struct ft_rule rules[] = {
    {"warp-rows", FT_CANNOT_RUN, warp_rows,
     "a warp owns 16, 32, 48 or 64 rows: whole mma tiles whose statistics fit", FT_READS_ANY},
    {"no-cp-async", FT_CANNOT_RUN, no_cp_async,
     "before sm_80 nothing is loaded in the background, so one stage", READS(stages)},
    {"overlap", FT_CANNOT_RUN, overlap, "issuing the next S early needs the next K: two stages",
     FT_READS_ANY},
    {"draw-early", FT_CANNOT_RUN, draw_early,
     "without dropout nothing is drawn; with overlap Q K^T has company already",
     READS(draw_early) | READS(overlap_qk)},
    {"ragged", FT_CANNOT_RUN, ragged,
     "of sequences of different lengths keys are not divided up, and heads are not packed",
     READS(split_keys) | READS(key_warps) | READS(pack_gqa)},
    {"key-warps", FT_CANNOT_RUN, key_warps,
     "warps that share rows are all of a block, and each takes 16, 32 or more keys of every step",
     FT_READS_ANY},
    {"pack-gqa", FT_CANNOT_RUN, pack_gqa,
     "heads of 16-bit types are packed into 16 rows, which all warps of a block share",
     READS(pack_gqa) | READS(key_warps) | READS(block_m)},
    {"whole-depths", FT_CANNOT_RUN, whole_depths,
     "with e4m3 P V takes a warp's keys in steps of 32, the k of its mma", FT_READS_ANY},
    {"descale-blocks", FT_CANNOT_RUN, descale_blocks,
     "a warp's queries have one descale, and so have its keys of a step", FT_READS_ANY},
    {"two-level", FT_CANNOT_RUN, two_level, "sums of other products are fp32 already",
     READS(two_level)},
    {"cluster-parts", FT_CANNOT_RUN, cluster_parts,
     "parts that a cluster puts together are 2, 4, 8 or 16, of rows that a block's warps share, "
     "from sm_90 on",
     READS(split_keys) | READS(key_warps)},
    {"packed-group", FT_NOT_WORTH_TRYING, ft_packed_group, FT_PACKED_GROUP_SAYS,
     READS(pack_gqa) | READS(block_m)},
    {"shared-rows", FT_NOT_WORTH_TRYING, shared_rows,
     "warps that share rows read Q and merge O once for each: where there are few rows",
     FT_READS_ANY},
    {"enough-tiles", FT_NOT_WORTH_TRYING, enough_tiles,
     "the keys of a tile are divided up where the tiles do not fill the GPU, or where few queries "
     "have walks of mixed lengths",
     FT_READS_ANY},
    {"register-limit", FT_NOT_WORTH_TRYING, ft_registers_suffice,
     "the fragments must fit the registers left by the launch bounds", FT_READS_ANY},
    {"short-tile", FT_NOT_WORTH_TRYING, short_tile,
     "few rows reload K and V too often, unless there are few to work on", FT_READS_ANY},
    {"long-tile", FT_NOT_WORTH_TRYING, long_tile,
     "more than half of the rows would lie beyond the last query", FT_READS_ANY},
    {"idle-quarters", FT_NOT_WORTH_TRYING, idle_quarters,
     "fewer than four warps leave a quarter of the multiprocessor without work", FT_READS_ANY},
    {"flat-tile", FT_NOT_WORTH_TRYING, flat_tile,
     "many more keys than queries cost registers for S and save no traffic", FT_READS_ANY},
    {"thin-tile", FT_NOT_WORTH_TRYING, thin_tile,
     "steps of 16 keys spend more on barriers and statistics than on products", FT_READS_ANY},
    {"shared-steps", FT_NOT_WORTH_TRYING, shared_steps,
     "where only the device knows how long the walks of few queries are, blocks share their steps, "
     "that none waits for the longest, unless all are short",
     FT_READS_ANY},
};

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
    .default_config = ft_mma_forward_default,
};
