/* wgmma_forward.c: the forward by wgmma.
 * in -> out: request + config + arch -> broken rules; its budget is in wgmma_forward_plan.c. */
#include "generator/families/wgmma_forward.h"

#include <string.h>

#include "generator/families/plan.h"
#include "generator/score/kind.h"
#include "generator/visibility.h"

enum { WARPGROUP_ROWS = 64 };

FT_DEFINE_TABLES(FT_WGMMA_FORWARD_KNOBS, FT_WGMMA_FORWARD_BUDGET);

/* A box of TMA, which is a page or a part of one, begins where the swizzle does: every eight rows.
 */
static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { SWIZZLE_ROWS = 8 };
  return arch->sm == 90 && !ft_dtype_is_fp32(request->dtype) &&
         request->dtype_kv == FT_KV_DEFAULT &&
         (request->pages == 0 || request->pages >= SWIZZLE_ROWS);
}

static enum ft_schedule schedule(const struct ft_request *request, const struct ft_config *config) {
  if (request->ragged)
    return ft_wgmma_forward_knobs(config)->split_keys ? FT_SCHEDULE_STREAM : FT_SCHEDULE_RAGGED;
  if (ft_wgmma_forward_knobs(config)->split_keys > 1) return FT_SCHEDULE_CLUSTER;
  if (ft_wgmma_forward_knobs(config)->split_keys) {
    if (request->mask_rows > 0) return FT_SCHEDULE_LONGEST;
    return request->pages > 0 ? FT_SCHEDULE_STREAM : FT_SCHEDULE_SPLIT;
  }
  if (ft_wgmma_forward_knobs(config)->lpt) return FT_SCHEDULE_LPT;
  return ft_request_tiles_differ(request) ? FT_SCHEDULE_BALANCED : FT_SCHEDULE_STATIC;
}

bool ft_wgmma_forward_fits(const struct ft_request *request, const struct ft_arch *arch,
                           const struct ft_config *config) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  return budget.regs_estimate <= budget.regs_limit && ft_config_is_legal(config, request, arch);
}

int ft_wgmma_forward_cluster(const struct ft_config *config) {
  return ft_wgmma_forward_knobs(config)->multicast > 0 ? 2 : 1;
}

void ft_wgmma_forward_walks(struct ft_walks *walks, const struct ft_request *request,
                            const struct ft_config *config, const struct ft_budget *budget) {
  const struct ft_wgmma_forward_budget *const own = ft_wgmma_forward_budget(budget);
  const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(config);
  walks->blocks_per_sm = 1;
  walks->cluster = k->split_keys > 1 ? k->split_keys : 0;
  walks->mixed = request->pages > 0 && request->batch != 1;
  walks->shared = schedule(request, config) == FT_SCHEDULE_STREAM;
  walks->longest = schedule(request, config) == FT_SCHEDULE_LONGEST;
  walks->block_m = ft_config_block_m(config);
  walks->block_n = ft_config_block_n(config);
  walks->head_dim = own->d_pad;
  walks->head_dim_v = own->dv_pad;
  walks->bytes = ft_dtype_bytes(request->dtype);
  walks->stages = k->stages;
  walks->mma_flops_per_clk = FT_WGMMA_FLOPS_PER_CLK;
}

struct ft_walks ft_wgmma_forward_walks_of(const struct ft_request *request,
                                          const struct ft_config *config,
                                          const struct ft_arch *arch) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  struct ft_walks walks = {0};
  ft_wgmma_forward_walks(&walks, request, config, &budget);
  ft_walks_of_request(&walks, request, ft_pack_of(config, request));
  return walks;
}

/* ---- rules ---- */

static const struct ft_wgmma_forward_knobs *knobs(const struct ft_rule_case *of) {
  return ft_wgmma_forward_knobs(of->config);
}

static const struct ft_wgmma_forward_budget *own_budget(const struct ft_rule_case *of) {
  return ft_wgmma_forward_budget(of->budget);
}

/* Rows that the tiles of a head, or of heads packed into them, are made of; 0: not known. */
static int64_t rows_of(const struct ft_rule_case *of) {
  return of->request->seqlen_q << ft_pack_of(of->config, of->request).bits;
}

static bool warpgroup_rows(const struct ft_rule_case *of) {
  return knobs(of)->block_m % WARPGROUP_ROWS == 0 && is_within(own_budget(of)->consumers, 1, 4);
}

static bool wgmma_n(const struct ft_rule_case *of) {
  return knobs(of)->block_n <= 256 && own_budget(of)->dv_pad <= 256;
}

/* ptxas holds all of one instruction's accumulator at once, with addresses, and P where that is an
 * operand in registers; what else is live may spill. */
static bool accumulators(const struct ft_rule_case *of) {
  enum { ADDRESSES = 26, P_OPERAND = 4 };
  const int p = knobs(of)->p_in_smem ? 0 : P_OPERAND;
  return max_int(own_budget(of)->regs_s, own_budget(of)->regs_o + p) + ADDRESSES <=
         of->budget->launch_regs;
}

/* What the e4m3 form has not: warps that transpose V are those that would store O, V belongs to one
 * block, and a tile's rows have one scale. */
static bool e4m3_form(const struct ft_rule_case *of) {
  const struct ft_wgmma_forward_knobs *const k = knobs(of);
  return of->request->dtype != FT_E4M3 ||
         (k->block_n % 32 == 0 && k->direct_store && !k->multicast && !k->p_in_smem &&
          !k->score_in_smem && !k->pack_gqa);
}

/* What a score function makes of a score has one log2 of V's descale added in all columns. */
static bool descale_blocks(const struct ft_rule_case *of) {
  const int rows = of->request->descale_rows, block_n = knobs(of)->block_n;
  return rows == 0 || rows % block_n == 0 || (block_n % rows == 0 && of->request->score == 0);
}

static bool wide_outputs(const struct ft_rule_case *of) {
  return !ft_outputs_are_wide(of->request) || knobs(of)->direct_store;
}

static bool two_level(const struct ft_rule_case *of) {
  return !knobs(of)->two_level || of->request->dtype == FT_E4M3;
}

/* Steps begin at multiples of block_n in each batch entry, and the workspace has no other tenant.
 */
static bool v_by_columns(const struct ft_rule_case *of) {
  return !knobs(of)->v_by_columns || (of->request->dtype == FT_E4M3 && !of->request->ragged &&
                                      of->request->pages == 0 && !knobs(of)->split_keys);
}

static bool one_stage(const struct ft_rule_case *of) {
  return knobs(of)->stages >= 2;
}

/* Keys in flight: what hides the latency of L2 several times over. */
static bool deep_pipeline(const struct ft_rule_case *of) {
  return knobs(of)->stages == 2 || knobs(of)->stages * knobs(of)->block_n <= 384;
}

static bool overlap_tiles(const struct ft_rule_case *of) {
  return !knobs(of)->overlap_tiles || knobs(of)->q_stages == 2 || knobs(of)->direct_store;
}

/* Q of the next tile comes early by a place of its own, or where O does not pass through that of Q.
 * Where tiles do not overlap, one of the two is enough. */
static bool needless_q(const struct ft_rule_case *of) {
  return knobs(of)->overlap_tiles || knobs(of)->q_stages == 1 || !knobs(of)->direct_store;
}

/* Where queries see different keys, the first warpgroups of a tile skip steps. The V of these steps
 * must come while the V of the tile before is still held. */
static bool skipped_stages(const struct ft_rule_case *of) {
  return !knobs(of)->overlap_tiles || own_budget(of)->skipped_steps < knobs(of)->stages;
}

static bool pingpong(const struct ft_rule_case *of) {
  return !knobs(of)->pingpong || own_budget(of)->consumers >= 2;
}

static bool lpt(const struct ft_rule_case *of) {
  return !knobs(of)->lpt || (ft_request_tiles_differ(of->request) && !of->request->ragged);
}

/* ptxas serialises the products when both are asked for (C7511); larger heads are not bound by
 * exponentials. */
static bool exp2_poly(const struct ft_rule_case *of) {
  return !knobs(of)->exp2_poly || (!knobs(of)->integer_max && knobs(of)->lazy_rescale &&
                                   of->request->head_dim <= 64 && of->request->head_dim_v <= 64);
}

static bool p_in_smem(const struct ft_rule_case *of) {
  return !knobs(of)->p_in_smem ||
         of->budget->regs_estimate + own_budget(of)->regs_p > of->budget->regs_limit;
}

/* TMA loads 64 columns of rows of one head. */
static bool score_in_smem(const struct ft_rule_case *of) {
  const struct ft_wgmma_forward_knobs *const k = knobs(of);
  return !k->score_in_smem || (ft_score_kind_of(of->request->score) == FT_SCORE_TILE &&
                               (k->score_in_smem == 1 || (k->block_n % 64 == 0 && !k->pack_gqa)));
}

/* Heads that share a tile have terms of their own. With e4m3 scores get a factor after the
 * products.
 */
static bool keys_in_product(const struct ft_rule_case *of) {
  const enum ft_score_kind kind = ft_score_kind_of(of->request->score);
  return !knobs(of)->keys_in_product ||
         ((kind == FT_SCORE_SIDES || kind == FT_SCORE_KEYS) && of->request->dtype != FT_E4M3 &&
          !knobs(of)->pack_gqa && !knobs(of)->score_in_smem);
}

/* The keys nearest to a query must be among those that it sees. The workspace has no other tenant,
 * and blocks that share K and V walk in step. */
static bool skip_far(const struct ft_rule_case *of) {
  const struct ft_request *const request = of->request;
  return !knobs(of)->skip_far ||
         (ft_score_kind_of(request->score) == FT_SCORE_SIDES && request->dtype != FT_E4M3 &&
          !request->ragged && request->pages == 0 && request->mask_rows == 0 &&
          !ft_hides_first_keys(request) && !knobs(of)->pack_gqa && !knobs(of)->split_keys &&
          !knobs(of)->multicast && !knobs(of)->ascending_keys);
}

/* A list is of whole tiles of single heads, or, where K and V lie in pages, of walks that blocks
 * share the steps of. */
static bool ragged(const struct ft_rule_case *of) {
  if (!of->request->ragged || (!knobs(of)->pack_gqa && !knobs(of)->split_keys)) return true;
  return of->request->pages > 0 && knobs(of)->split_keys == 1;
}

static bool whole_pages(const struct ft_rule_case *of) {
  const int rows = of->request->pages;
  const int own =
      knobs(of)->block_n / ft_wgmma_forward_cluster(of->config); /* that a block loads */
  return rows == 0 || rows % own == 0 || own % rows == 0;
}

/* A longer head fills tiles of its own: one row in nine at most is beyond its last query. And rows
 * that are further apart have fewer hidden keys in common. */
static bool packed_length(const struct ft_rule_case *of) {
  return !knobs(of)->pack_gqa || !ft_visibility_varies(of->request) || of->request->ragged ||
         of->request->seqlen_q <= 8 * knobs(of)->block_m;
}

/* The two blocks of a cluster walk in step: their tiles have the same steps. Those of two heads do
 * where heads have no masks of their own. */
static bool multicast(const struct ft_rule_case *of) {
  const struct ft_wgmma_forward_knobs *const k = knobs(of);
  if (k->multicast < 2) return !k->multicast || !ft_request_tiles_differ(of->request);
  return schedule(of->request, of->config) == FT_SCHEDULE_BALANCED && of->request->mask_rows == 0 &&
         !k->pack_gqa;
}

/* A part's O goes to the workspace from registers, and blocks that share K and V take the same
 * steps. */
static bool split_keys(const struct ft_rule_case *of) {
  return !knobs(of)->split_keys ||
         (knobs(of)->direct_store && !knobs(of)->multicast && !knobs(of)->lpt);
}

/* The parts lie where K and V were. A second warpgroup might still read those, and the loads of a
 * further work tile would write there. */
static bool cluster_parts(const struct ft_rule_case *of) {
  const struct ft_wgmma_forward_knobs *const k = knobs(of);
  return k->split_keys <= 1 || (is_power_of_two(k->split_keys) && k->block_m == WARPGROUP_ROWS &&
                                k->q_stages == 1 && !k->overlap_tiles);
}

/* K and V are in pages, so only the device knows the lengths of the walks; the request has that of
 * the longest. And there are few queries. */
static bool has_mixed_walks(const struct ft_rule_case *of) {
  const struct ft_request *const request = of->request;
  return request->pages > 0 && request->mask_rows == 0 && !request->ragged && rows_of(of) > 0 &&
         rows_of(of) <= WARPGROUP_ROWS;
}

static bool shared_steps(const struct ft_rule_case *of) {
  return knobs(of)->split_keys || !has_mixed_walks(of);
}

static bool enough_tiles(const struct ft_rule_case *of) {
  const struct ft_request *const request = of->request;
  const struct ft_pack pack = ft_pack_of(of->config, request);
  const bool longest_alone = request->mask_rows > 0 && knobs(of)->split_keys == 1;
  return !knobs(of)->split_keys || has_mixed_walks(of) || longest_alone || request->ragged ||
         ft_split_may_pay(request, pack, knobs(of)->block_m, of->arch->sm_count);
}

static bool lone_tile(const struct ft_rule_case *of) {
  return knobs(of)->multicast != 1 || of->request->seqlen_q == 0 ||
         rows_of(of) > knobs(of)->block_m;
}

/* Where they are odd in number, one is computed twice. Smaller boxes are slow by multicast, and
 * what comes as whole tiles is faster without (bench/ledger.md). */
static bool pairs_of_heads(const struct ft_rule_case *of) {
  enum { ROWS_OF_PAGE = 32 };
  const struct ft_request *const request = of->request;
  const bool even = request->heads_kv == 0 || request->heads_q / request->heads_kv % 2 == 0;
  return knobs(of)->multicast < 2 || (even && request->pages >= ROWS_OF_PAGE);
}

/* The compiler finds room for a few registers more than the estimate allows for, and where it does
 * not, the spills show. Fragments of P on their way to shared memory leave it no such room. */
static bool consumer_registers(const struct ft_rule_case *of) {
  enum { MORE = 16 };
  return of->budget->regs_estimate <= of->budget->regs_limit + (knobs(of)->p_in_smem ? 0 : MORE);
}

static bool long_tile(const struct ft_rule_case *of) {
  return ft_half_a_tile_is_used(rows_of(of), knobs(of)->block_m);
}

#define READS(knob) FT_READS(wgmma_forward, knob)
static const struct ft_rule rules[] = {
    {"warpgroup-rows", FT_CANNOT_RUN, warpgroup_rows,
     "a warpgroup owns 64 rows, the m of wgmma, and registers are for four of them at most",
     FT_READS_ANY},
    {"wgmma-n", FT_CANNOT_RUN, wgmma_n,
     "one wgmma makes all columns of S, and one all of O: 256 are its most", FT_READS_ANY},
    {"accumulators", FT_CANNOT_RUN, accumulators,
     "the accumulator of one wgmma must fit the registers with which a block of so many threads "
     "begins",
     FT_READS_ANY},
    {"e4m3-form", FT_CANNOT_RUN, e4m3_form,
     "with e4m3 P V takes keys in steps of 32, P stays in registers and O leaves from registers, "
     "heads and blocks share nothing, and a score reads element by element",
     READS(block_n) | READS(direct_store) | READS(multicast) | READS(p_in_smem) |
         READS(score_in_smem) | READS(pack_gqa)},
    {"descale-blocks", FT_CANNOT_RUN, descale_blocks,
     "the keys of a step have one descale, or without a score function whole blocks of theirs",
     FT_READS_ANY},
    {"wide-outputs", FT_CANNOT_RUN, wide_outputs,
     "O in fp32 has no room where Q was: it goes from registers to global memory",
     READS(direct_store)},
    {"two-level", FT_CANNOT_RUN, two_level, "sums of 16-bit products are fp32 already",
     READS(two_level)},
    {"v-by-columns", FT_CANNOT_RUN, v_by_columns,
     "V of e4m3 is turned around by a kernel of its own where it is neither ragged nor in pages, "
     "and walks are not divided",
     READS(v_by_columns) | READS(split_keys)},
    {"one-stage", FT_CANNOT_RUN, one_stage,
     "the producer fills one stage while the consumers read another", READS(stages)},
    {"overlap-tiles", FT_CANNOT_RUN, overlap_tiles,
     "tiles overlap where the next Q can come early: into a second place, or into that of its own "
     "which O does not need",
     FT_READS_ANY},
    {"skipped-stages", FT_CANNOT_RUN, skipped_stages,
     "where queries see different keys and tiles overlap, each step that a warpgroup may skip "
     "needs "
     "a stage, and one more",
     FT_READS_ANY},
    {"pingpong", FT_CANNOT_RUN, pingpong, "it takes two consumer warpgroups or more to take turns",
     FT_READS_ANY},
    {"multicast", FT_CANNOT_RUN, multicast,
     "blocks that share K and V need tiles of equal steps; where steps differ those of two heads "
     "have them, in balanced pairs, if no block mask has rows of each head",
     READS(multicast) | READS(lpt) | READS(split_keys) | READS(pack_gqa)},
    {"score-in-smem", FT_CANNOT_RUN, score_in_smem,
     "a score that reads 16-bit floats of each query and key, side by side along the keys, may do "
     "so by way of shared memory; by TMA where steps have 64, 128 or more keys and tiles are of "
     "one "
     "head",
     READS(score_in_smem) | READS(block_n) | READS(pack_gqa)},
    {"keys-in-product", FT_CANNOT_RUN, keys_in_product,
     "a score that adds to s what is of a key, or a factor of |query - key|, may do so by the "
     "products of 16-bit types, where tiles are of one head",
     READS(keys_in_product) | READS(pack_gqa) | READS(score_in_smem)},
    {"skip-far", FT_CANNOT_RUN, skip_far,
     "keys far from the query are left out where a score has a factor of |query - key|, operands "
     "have 16 bits, tiles are of one head, neither masked nor ragged nor in pages, and each block "
     "walks down a whole walk of its own",
     READS(skip_far) | READS(pack_gqa) | READS(split_keys) | READS(multicast) |
         READS(ascending_keys)},
    {"ragged", FT_CANNOT_RUN, ragged,
     "of sequences of different lengths heads are packed and keys divided up only where K and V "
     "are "
     "in pages, by blocks that share all steps",
     READS(pack_gqa) | READS(split_keys)},
    {"whole-pages", FT_CANNOT_RUN, whole_pages,
     "a tile of keys, or the half that a block loads for two, lies in one page, or fills whole "
     "pages",
     READS(block_n) | READS(multicast)},
    {"split-keys", FT_CANNOT_RUN, split_keys,
     "the O of a part is stored from registers, its block shares no K and V, and parts have an "
     "order of their own",
     FT_READS_ANY},
    {"cluster-parts", FT_CANNOT_RUN, cluster_parts,
     "parts that a cluster puts together are 2, 4, 8 or 16, of 64 rows, the only ones of their "
     "blocks",
     FT_READS_ANY},
    {"enough-tiles", FT_NOT_WORTH_TRYING, enough_tiles,
     "the keys of a tile are divided up where the tiles do not fill the GPU, or where a block mask "
     "may have rows much longer than others",
     FT_READS_ANY},
    {"shared-steps", FT_NOT_WORTH_TRYING, shared_steps,
     "where only the device knows how long the walks of few queries are, blocks share their steps, "
     "that none waits for the longest",
     FT_READS_ANY},
    {"deep-pipeline", FT_NOT_WORTH_TRYING, deep_pipeline,
     "more keys on their way than hide any latency take room and gain nothing", FT_READS_ANY},
    {"needless-q", FT_NOT_WORTH_TRYING, needless_q,
     "q_stages=2 and direct_store=1 both let the next tile's Q come early; where tiles do not "
     "overlap one of them is enough",
     FT_READS_ANY},
    {"lpt", FT_NOT_WORTH_TRYING, lpt,
     "where all queries see the same keys and there is no mask, all tiles are as long; a list of "
     "tiles has an order of its own",
     READS(lpt)},
    {"exp2-poly", FT_NOT_WORTH_TRYING, exp2_poly,
     "polynomials are for heads bound by exponentials that do nothing else in their place",
     READS(exp2_poly) | READS(integer_max) | READS(lazy_rescale)},
    {"p-in-smem", FT_NOT_WORTH_TRYING, p_in_smem,
     "P by way of shared memory costs traffic and a barrier: for tiles whose registers do not "
     "suffice",
     FT_READS_ANY},
    {"lone-tile", FT_NOT_WORTH_TRYING, lone_tile,
     "two blocks share K and V where a head has two tiles at least", FT_READS_ANY},
    {"pairs-of-heads", FT_NOT_WORTH_TRYING, pairs_of_heads,
     "two heads share K and V in pages of 32 rows or more, and those of a group are even in number",
     READS(multicast)},
    {"packed-group", FT_NOT_WORTH_TRYING, ft_packed_group, FT_PACKED_GROUP_SAYS,
     READS(pack_gqa) | READS(block_m)},
    {"packed-length", FT_NOT_WORTH_TRYING, packed_length,
     "where queries see different keys, a head of so many of them fills tiles of its own",
     FT_READS_ANY},
    {"consumer-registers", FT_NOT_WORTH_TRYING, consumer_registers,
     "S, O and P, unless in shared memory, must about fit the registers a consumer can claim",
     FT_READS_ANY},
    {"long-tile", FT_NOT_WORTH_TRYING, long_tile,
     "more than half of the rows would lie beyond the last query", FT_READS_ANY},
};

const struct ft_family ft_wgmma_forward_family = {
    .name = "wgmma_forward",
    .pass = FT_FORWARD,
    .instructions = "wgmma",
    .target_suffix = "a",
    .template_name = "wgmma_forward.cu.in",
    .serves = serves,
    .schedule = schedule,
    FT_FAMILY_TABLES,
    .plan = ft_wgmma_forward_plan,
    .default_config = ft_wgmma_forward_default,
};
