/* rules.c: which configs are legal, one rule a row, one reason a rule.
 * in -> out: request + arch + config -> the first broken rule.
 * Rules depend on the lengths only where they are known (not 0): a kernel class passes all that any
 * of its requests passes. */
#include "generator/rules.h"

#include <stddef.h>

#include "generator/status.h"
#include "generator/visibility.h"

#define RULE(function)                                                                             \
  static int function(const struct ft_request *request, const struct ft_arch *arch,                \
                      const struct ft_config *config, const struct ft_budget *budget)
#define UNUSED(argument) ((void)(argument))

/* The one switch of the wgmma family: on as soon as templates/catalogue.lua names a template of its
 * for forward. */
static const bool wgmma_has_template = true;

bool ft_family_serves(enum ft_family family, const struct ft_request *request,
                      const struct ft_arch *arch) {
  switch (family) {
  case FT_FAMILY_MMA: return request->pass == FT_FORWARD; /* wherever anything does */
  case FT_FAMILY_MMA_BACKWARD: return request->pass == FT_BACKWARD;
  case FT_FAMILY_WGMMA: return wgmma_has_template && request->pass == FT_FORWARD && arch->sm == 90;
  }
  return false;
}

/* ft_budget_of gives an all-zero budget when a number is out of range; switches are looked at
 * here. The registers of a wgmma kernel are shared out for one block on a multiprocessor. */
RULE(knob_range) {
  UNUSED(request), UNUSED(arch);
  if (budget->threads == 0) return 0;
  if (config->family == FT_FAMILY_WGMMA)
    return (config->overlap_tiles | config->integer_max | config->exp2_poly | config->lazy_rescale |
            config->p_in_smem | config->direct_store | config->ascending_keys | config->lpt |
            config->multicast | config->pack_gqa | 1) == 1 &&
           is_within(config->pingpong, 0, 2) && config->ctas_per_sm == 1;
  if (config->family == FT_FAMILY_MMA_BACKWARD)
    return (config->kv_in_regs | config->deferred_dq | 1) == 1 && is_within(config->stages, 1, 2) &&
           is_within(config->dq_mode, 0, 2);
  return (config->q_in_regs | config->overlap_qk | config->draw_early | 1) == 1;
}

/* Rows that the tiles of a head, or of heads packed into them, are made of; 0: not known. */
static int64_t rows_of(const struct ft_request *request, const struct ft_config *config) {
  if (request->heads_kv == 0) return request->seqlen_q;
  const int group = request->heads_q / request->heads_kv;
  return request->seqlen_q * ft_packed_heads(config, group, request->seqlen_q);
}

RULE(family) {
  UNUSED(budget);
  return ft_family_serves(config->family, request, arch);
}

RULE(warp_rows) {
  UNUSED(request), UNUSED(arch);
  const int rows = budget->warp_rows;
  return config->block_m % config->warps == 0 &&
         (rows == 16 || rows == 32 || rows == 48 || rows == 64);
}

RULE(warpgroup_rows) {
  UNUSED(request), UNUSED(arch);
  return config->block_m % 64 == 0 && budget->consumers >= 1 && budget->consumers <= 4;
}

/* Roles and column_warps divide the warps, powers of two all of them. */
RULE(warp_keys) {
  UNUSED(request), UNUSED(arch);
  const int keys = budget->warp_keys, warps = config->warps;
  return (warps & (warps - 1)) == 0 && (config->column_warps & (config->column_warps - 1)) == 0 &&
         budget->key_warps >= 1 && config->block_n % budget->key_warps == 0 &&
         (keys == 16 || keys == 32 || keys == 64);
}

RULE(part_queries) {
  UNUSED(request), UNUSED(arch);
  const int queries = budget->part_queries;
  return queries * config->query_parts * config->column_warps == config->block_m &&
         queries % 16 == 0 && queries >= 16 && (config->block_m & (config->block_m - 1)) == 0;
}

/* One for each group of warps that exchanges P, and one where such a group is of more than two. */
RULE(named_barriers) {
  UNUSED(request), UNUSED(arch);
  const int each = config->column_warps > 1 ? 3 : 1;
  return budget->key_warps * config->query_parts * each <= 15;
}

RULE(deterministic) {
  UNUSED(arch), UNUSED(budget);
  return !request->deterministic || config->dq_mode != 0;
}

RULE(ordered_dq) {
  UNUSED(arch), UNUSED(budget);
  return config->dq_mode != 1 || (request->deterministic && request->mask_rows == 0);
}

/* A pass of its own doubles two of the products. */
RULE(second_pass) {
  UNUSED(arch), UNUSED(budget);
  return config->dq_mode != 2 || request->deterministic;
}

RULE(deferred_dq) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return !config->deferred_dq || config->dq_mode != 2;
}

RULE(block_n) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return config->block_n % 16 == 0;
}

RULE(wgmma_n) {
  UNUSED(request), UNUSED(arch);
  return config->block_n <= 256 && budget->dv_pad <= 256;
}

RULE(one_stage) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return config->stages >= 2;
}

/* Keys in flight: what hides the latency of L2 several times over. */
RULE(deep_pipeline) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return config->stages == 2 || config->stages * config->block_n <= 384;
}

RULE(overlap_tiles) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return !config->overlap_tiles || config->q_stages == 2 || config->direct_store;
}

/* Tiles one by one need at most one way for the next Q to come early. */
RULE(needless_q) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return config->overlap_tiles || config->q_stages == 1 || !config->direct_store;
}

/* Under causal the first warpgroups of a tile skip steps, whose V must come while that of the tile
 * before is still held. */
RULE(skipped_stages) {
  UNUSED(request), UNUSED(arch);
  return !config->overlap_tiles || budget->skipped_steps < config->stages;
}

RULE(pingpong) {
  UNUSED(request), UNUSED(arch);
  return !config->pingpong || budget->consumers >= 2;
}

RULE(lpt) {
  UNUSED(arch), UNUSED(budget);
  return !config->lpt || ft_request_tiles_differ(request);
}

/* ptxas serialises the products when both are asked for (C7511); larger heads are not bound by
 * exponentials. */
RULE(exp2_poly) {
  UNUSED(arch), UNUSED(budget);
  return !config->exp2_poly || (!config->integer_max && config->lazy_rescale &&
                                request->head_dim <= 64 && request->head_dim_v <= 64);
}

RULE(p_in_smem) {
  UNUSED(request), UNUSED(arch);
  return !config->p_in_smem || budget->regs_estimate + budget->regs_p > budget->regs_limit;
}

/* Row masks and random bits are those of one head. */
RULE(pack_gqa) {
  UNUSED(arch), UNUSED(budget);
  return !config->pack_gqa || (!request->dropout && request->mask_rows == 0);
}

RULE(packed_group) {
  UNUSED(arch), UNUSED(budget);
  return !config->pack_gqa || request->heads_kv == 0 ||
         request->heads_q / request->heads_kv % 2 == 0;
}

/* With more, one row in nine at most is beyond the last query of its head, and causal skips fewer
 * keys for rows that are further apart. */
RULE(packed_length) {
  UNUSED(arch), UNUSED(budget);
  return !config->pack_gqa || !ft_visibility_varies(request) ||
         request->seqlen_q <= 8 * config->block_m;
}

/* The two blocks of a cluster walk in step: their tiles have the same steps. */
RULE(multicast) {
  UNUSED(budget), UNUSED(arch);
  if (!config->multicast) return 1;
  return !ft_request_tiles_differ(request) &&
         (request->seqlen_q == 0 || rows_of(request, config) > config->block_m);
}

RULE(no_cp_async) {
  UNUSED(request), UNUSED(budget);
  return arch->sm >= 80 || config->stages == 1;
}

RULE(overlap_stages) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return !config->overlap_qk || config->stages >= 2;
}

RULE(draw_early) {
  UNUSED(arch), UNUSED(budget);
  return !config->draw_early || (request->dropout && !config->overlap_qk);
}

RULE(mask_rows) {
  UNUSED(arch), UNUSED(budget);
  return request->mask_rows == 0 || request->mask_rows % config->block_m == 0;
}

RULE(mask_cols) {
  UNUSED(arch), UNUSED(budget);
  return request->mask_cols == 0 || request->mask_cols % config->block_n == 0;
}

RULE(thread_limit) {
  UNUSED(request);
  return budget->threads <= 1024 && config->ctas_per_sm * budget->threads <= arch->threads_per_sm &&
         config->ctas_per_sm <= arch->blocks_per_sm;
}

RULE(smem_limit) {
  UNUSED(request), UNUSED(config);
  return budget->smem_bytes <= arch->smem_per_block;
}

RULE(smem_occupancy) {
  UNUSED(request);
  return config->ctas_per_sm * (budget->smem_bytes + arch->smem_reserved) <= arch->smem_per_sm;
}

RULE(register_limit) {
  UNUSED(request), UNUSED(arch), UNUSED(config);
  return budget->regs_estimate <= budget->regs_limit;
}

/* The compiler finds room for a few registers more than the estimate allows for, and where it does
 * not, the spills show. Fragments of P on their way to shared memory leave it no such room. */
RULE(consumer_registers) {
  enum { MORE = 16 };
  UNUSED(request), UNUSED(arch);
  return budget->regs_estimate <= budget->regs_limit + (config->p_in_smem ? 0 : MORE);
}

/* Rows of queries a block can use: of the mask's block, of the request where its length is known.
 */
RULE(short_tile) {
  UNUSED(arch), UNUSED(budget);
  if (config->block_m >= 64) return 1;
  return (request->mask_rows != 0 && request->mask_rows % 64 != 0) || request->seqlen_q <= 32;
}

RULE(long_tile) {
  UNUSED(arch), UNUSED(budget);
  return request->seqlen_q == 0 || config->block_m <= 64 ||
         config->block_m < 2 * rows_of(request, config);
}

RULE(idle_quarters) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return config->block_m < 64 || config->warps * config->ctas_per_sm >= 4;
}

RULE(flat_tile) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return config->block_n <= 2 * config->block_m || config->block_m < 64;
}

/* Big heads may have no room for more than 16 keys; a fine mask allows no more. */
RULE(thin_tile) {
  UNUSED(arch), UNUSED(budget);
  return config->block_n >= 32 || request->mask_cols % 32 != 0 ||
         request->head_dim + request->head_dim_v > 256;
}

/* Backward: queries of a step and keys of a block, of which there may be few to work on, or room
 * for few beside big heads. */
RULE(short_step) {
  UNUSED(arch), UNUSED(budget);
  return config->block_m >= 64 || request->mask_rows % 64 != 0 || request->seqlen_q <= 32 ||
         request->head_dim + request->head_dim_v > 128;
}

RULE(few_keys) {
  UNUSED(arch), UNUSED(budget);
  return config->block_n >= 64 || request->mask_cols % 64 != 0 ||
         request->head_dim + request->head_dim_v > 256;
}

RULE(thin_parts) {
  UNUSED(request), UNUSED(arch);
  return config->query_parts == 1 || budget->part_queries >= 32;
}

RULE(shared_keys) {
  UNUSED(arch);
  return config->column_warps == 1 || budget->warp_keys >= 32 || config->block_n < 32 ||
         request->head_dim + request->head_dim_v > 256;
}

RULE(few_warps) {
  UNUSED(request), UNUSED(arch), UNUSED(budget);
  return config->warps * config->ctas_per_sm >= 8 || config->block_n < 64;
}

enum {
  EVERY = FT_EVERY_FAMILY,
  MMA = FT_FAMILY_MMA,
  WGMMA = FT_FAMILY_WGMMA,
  BACKWARD = FT_FAMILY_MMA_BACKWARD
};

static const struct ft_rule rules[] = {
    {EVERY, "knob-range", "a knob is outside what the kernel can be written for", knob_range},
    {EVERY, "family",
     "the family has instructions that this GPU lacks, or no kernel for such a request", family},
    {MMA, "warp-rows", "a warp owns 16, 32, 48 or 64 rows: whole mma tiles whose statistics fit",
     warp_rows},
    {WGMMA, "warpgroup-rows",
     "a warpgroup owns 64 rows, the m of wgmma, and registers are for four of them at most",
     warpgroup_rows},
    {BACKWARD, "warp-keys",
     "a warp has 16, 32 or 64 keys: whole mma tiles, of which the role's warps divide block_n",
     warp_keys},
    {BACKWARD, "part-queries", "a warp makes scores of whole mma tiles of 16 queries at a time",
     part_queries},
    {BACKWARD, "named-barriers", "a block has 15 of them besides that of all its threads",
     named_barriers},
    {BACKWARD, "deterministic", "atomic adds come in any order, and sums are rounded by it",
     deterministic},
    {BACKWARD, "ordered-dq",
     "adds in order cost time for determinism's sake; under a mask it is not known who comes "
     "before",
     ordered_dq},
    {BACKWARD, "second-pass", "a pass of its own is only worth its products for determinism",
     second_pass},
    {BACKWARD, "deferred-dq", "without dQ in the main kernel there is nothing to be late",
     deferred_dq},
    {EVERY, "block-n", "P V takes keys in steps of 16, the k of one mma", block_n},
    {WGMMA, "wgmma-n", "one wgmma makes all columns of S, and one all of O: 256 are its most",
     wgmma_n},
    {EVERY, "no-cp-async", "before sm_80 nothing is loaded in the background, so one stage",
     no_cp_async},
    {WGMMA, "one-stage", "the producer fills one stage while the consumers read another",
     one_stage},
    {MMA, "overlap", "issuing the next S early needs the next K: two stages", overlap_stages},
    {WGMMA, "deep-pipeline",
     "more keys on their way than hide any latency take room and gain nothing", deep_pipeline},
    {WGMMA, "overlap-tiles",
     "tiles overlap where the next Q can come early: into a second place, or into that of its own "
     "which O does not need",
     overlap_tiles},
    {WGMMA, "needless-q",
     "where tiles do not overlap one way for the next Q to come early is enough", needless_q},
    {WGMMA, "skipped-stages",
     "with causal and overlapping tiles each step that a warpgroup may skip needs a stage, and one "
     "more",
     skipped_stages},
    {WGMMA, "pingpong", "it takes two consumer warpgroups or more to take turns", pingpong},
    {WGMMA, "lpt", "without causal and mask all tiles are as long", lpt},
    {WGMMA, "exp2-poly",
     "polynomials are for heads bound by exponentials that do nothing else in their place",
     exp2_poly},
    {WGMMA, "p-in-smem",
     "P by way of shared memory costs traffic and a barrier: for tiles whose registers do not "
     "suffice",
     p_in_smem},
    {WGMMA, "multicast", "blocks that share K and V need tiles of equal steps, two at least",
     multicast},
    {WGMMA, "pack-gqa", "dropout and masks go by head, so packed tiles have neither", pack_gqa},
    {WGMMA, "packed-group", "heads are packed by powers of two, which must divide the group",
     packed_group},
    {WGMMA, "packed-length", "under causal, a head of so many queries fills tiles of its own",
     packed_length},
    {MMA, "draw-early", "without dropout nothing is drawn; with overlap Q K^T has company already",
     draw_early},
    {EVERY, "mask-rows", "a block of queries must lie in one row of the mask", mask_rows},
    {EVERY, "mask-cols", "a block of keys must lie in one column of the mask", mask_cols},
    {EVERY, "thread-limit",
     "blocks have at most 1024 threads, and all that are aimed at must be resident", thread_limit},
    {EVERY, "smem-limit", "the buffers must fit the shared memory of a block", smem_limit},
    {EVERY, "smem-occupancy", "as many blocks as aimed at must fit the shared memory together",
     smem_occupancy},
    {MMA, "register-limit", "the fragments must fit the registers left by the launch bounds",
     register_limit},
    {BACKWARD, "sum-registers", "sums and scores must fit the registers left by the launch bounds",
     register_limit},
    {WGMMA, "consumer-registers",
     "S, O and P, unless in shared memory, must about fit the registers a consumer can claim",
     consumer_registers},
    {MMA, "short-tile", "few rows reload K and V too often, unless there are few to work on",
     short_tile},
    {EVERY, "long-tile", "more than half of the rows would lie beyond the last query", long_tile},
    {MMA, "idle-quarters",
     "fewer than four warps leave a quarter of the multiprocessor without work", idle_quarters},
    {MMA, "flat-tile", "many more keys than queries cost registers for S and save no traffic",
     flat_tile},
    {BACKWARD, "short-step",
     "few queries of a step do not pay for its barriers, unless there are few or heads are big",
     short_step},
    {BACKWARD, "few-keys", "a block of few keys reloads Q and dO too often, unless heads are big",
     few_keys},
    {BACKWARD, "thin-parts", "parts are for scores of many queries; each costs an exchange of P",
     thin_parts},
    {BACKWARD, "shared-keys",
     "warps share keys to have more of them in registers, not to have 16 each", shared_keys},
    {BACKWARD, "few-warps", "two warps of a quarter hide what one waits for", few_warps},
    {MMA, "thin-tile", "steps of 16 keys spend more on barriers and statistics than on products",
     thin_tile},
};

static bool concerns(const struct ft_rule *rule, const struct ft_config *config) {
  return rule->family == FT_EVERY_FAMILY || rule->family == (int)config->family;
}

const struct ft_rule *ft_rules_broken(const struct ft_request *request, const struct ft_arch *arch,
                                      const struct ft_config *config) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; ++i)
    if (concerns(&rules[i], config) && !rules[i].holds(request, arch, config, &budget))
      return &rules[i];
  return NULL;
}

const struct ft_rule *ft_rules_at(int index) {
  return index >= 0 && index < (int)(sizeof rules / sizeof rules[0]) ? &rules[index] : NULL;
}

int ft_rules_serves(const struct ft_request *request, const struct ft_arch *arch) {
  if (arch->sm < 75)
    return ft_fail(FT_E_UNSUPPORTED, "%s is sm_%d; tensor-core attention needs sm_75 or later",
                   arch->name, arch->sm);
  if (request->dtype == FT_BF16 && arch->sm < 80)
    return ft_fail(FT_E_UNSUPPORTED, "bf16 needs sm_80 or later, and %s is sm_%d; fp16 is possible",
                   arch->name, arch->sm);
  return FT_OK;
}
