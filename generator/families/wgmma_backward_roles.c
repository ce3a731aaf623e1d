/* wgmma_backward_roles.c: the gradients of wide heads by wgmma, in clusters of two blocks.
 * in -> out: request + config + arch -> budget, broken rules, the default config. */
#include "generator/families/wgmma_backward_roles.h"

#include <string.h>

#include "generator/families/plan.h"

FT_DEFINE_TABLES(FT_WGMMA_BACKWARD_ROLES_KNOBS, FT_WGMMA_BACKWARD_ROLES_BUDGET);

enum { BLOCKS = 2, BLOCK_KEYS = 64, STEP_QUERIES = 64 };

/* Other requests stay with wgmma_backward, which has no cluster, and mma_backward. The columns of
 * dQ are shared out by whole panels, so there are two at least. */
static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { NARROW = 128 };
  return arch->sm == 90 && !ft_dtype_is_fp32(request->dtype) &&
         (!request->deterministic || ft_adds_have_an_order(request)) &&
         max_int(request->head_dim, request->head_dim_v) > NARROW &&
         request->head_dim > FT_PANEL_COLUMNS;
}

/* ---- budget ---- */

/* Barriers | LSE | delta | K | V | columns of the other K | Q stages | dO stages | dS stages |
 * stages of the other dS | pieces of dQ. Panels are aligned by whole 1024 bytes. */
static void plan_tiles(struct ft_budget *budget, struct ft_wgmma_backward_roles_budget *own,
                       const struct ft_wgmma_backward_roles_knobs *k) {
  enum { BARRIERS = 512, ALIGNMENT = 1024, WORD = 4 };
  const int rows = k->block_m * FT_PANEL_ROW, keys = k->block_n / BLOCKS * FT_PANEL_ROW;
  own->q_bytes = rows * own->d_panels;
  own->do_bytes = rows * own->dv_panels;
  own->k_bytes = keys * own->d_panels;
  own->v_bytes = keys * own->dv_panels;
  own->ds_bytes = keys * (k->block_m / STEP_QUERIES);
  own->smem_lse_offset = BARRIERS;
  own->smem_delta_offset = own->smem_lse_offset + k->q_stages * k->block_m * WORD;
  own->smem_k_offset =
      round_up(own->smem_delta_offset + k->do_stages * k->block_m * WORD, ALIGNMENT);
  own->smem_v_offset = own->smem_k_offset + own->k_bytes;
  own->smem_other_k_offset = own->smem_v_offset + own->v_bytes;
  own->smem_q_offset = own->smem_other_k_offset + keys * own->other_k_panels;
  own->smem_do_offset = own->smem_q_offset + k->q_stages * own->q_bytes;
  own->smem_ds_offset = own->smem_do_offset + k->do_stages * own->do_bytes;
  own->smem_other_ds_offset = own->smem_ds_offset + k->ds_stages * own->ds_bytes;
  own->smem_dq_offset = own->smem_other_ds_offset + k->ds_stages * own->ds_bytes;
  budget->smem_bytes = own->smem_dq_offset + k->dq_stages * k->block_m * FT_PANEL_COLUMNS * WORD;
}

/* Panels of the other block's K that a block needs for its columns of dQ, the first block or the
 * second. */
static int other_k_panels(int first_columns, int d_panels) {
  return max_int(ft_panels(first_columns), d_panels - first_columns / FT_PANEL_COLUMNS);
}

/* Half of the columns of dQ, in whole products of 16, where that takes no more panels of the other
 * K than whole panels would. Where one product more or less makes no difference to the block that
 * has more, the columns of the second block begin with a panel. */
static int first_columns(int d_pad, int d_panels) {
  enum { COLUMNS = 16 };
  const int by_panels = (d_panels + 1) / 2;
  const int more = round_up(d_pad / 2, COLUMNS), less = d_pad - more;
  if (other_k_panels(more, d_panels) > by_panels) return by_panels * FT_PANEL_COLUMNS;
  return less % FT_PANEL_COLUMNS == 0 ? less : more;
}

/* Beside the sums of 160 columns there is room for rows of K or V, which S and dP then need not
 * read from shared memory. A score function and the walk over a block mask need it. */
static bool kv_in_regs(const struct ft_request *request, int d_pad, int dv_pad) {
  enum { COLUMNS_MOST = 160 };
  return request->score == 0 && request->mask_rows == 0 && max_int(d_pad, dv_pad) <= COLUMNS_MOST;
}

/* Where the columns of dQ that the second block makes begin inside of a panel, they would take a
 * product for the rest of that panel and one for the panels behind it, and each reads dS. Loaded
 * from their first column on they take one. That takes room, which V leaves when its rows are in
 * registers. */
static bool keys_apart(const struct ft_wgmma_backward_roles_budget *own) {
  return own->kv_in_regs && own->first_columns % FT_PANEL_COLUMNS != 0 &&
         own->dv_panels >= ft_panels(own->d_pad - own->first_columns);
}

/* An accumulator of 64 x C values lies in 128 threads: C / 2 registers of each. Registers are
 * shared out as measured on an H200 with d = 256: the warpgroup that makes P holds LSE besides.
 * With a score function it does not, and ptxas spills least if the warpgroup that makes dS has
 * more. */
static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  enum { THREADS = 512, PREPARE_THREADS = 256, DQ_THREADS = 128, ADDRESSES = 12 };
  const struct ft_wgmma_backward_roles_knobs *const k = ft_wgmma_backward_roles_knobs(config);
  struct ft_wgmma_backward_roles_budget own = {
      .d_pad = round_up(request->head_dim, 16),
      .dv_pad = round_up(request->head_dim_v, 16),
      .loader_regs = 24,
      .values_regs = request->score ? 192 : 200,
      .keys_regs = request->score ? 200 : 192,
      .queries_regs = 96,
      .dq_sums = ft_dq_sums(request, request->deterministic),
      .prepare_threads = PREPARE_THREADS,
      .dq_threads = DQ_THREADS,
      .regs_s = k->block_m / 2 + k->block_m / 4,
      .regs_sum = max_int(request->head_dim, request->head_dim_v) / 2,
  };
  own.d_panels = ft_panels(own.d_pad);
  own.dv_panels = ft_panels(own.dv_pad);
  own.kv_in_regs = kv_in_regs(request, own.d_pad, own.dv_pad);
  own.regs_kv = own.kv_in_regs ? max_int(own.d_pad, own.dv_pad) / 4 : 0;
  own.first_columns = first_columns(own.d_pad, own.d_panels);
  own.other_k_panels = other_k_panels(own.first_columns, own.d_panels);
  own.keys_apart = keys_apart(&own);
  own.qk_stride = ft_row_stride(own.d_pad, ft_dtype_bytes(request->dtype));
  own.dq_smem = k->block_m * own.qk_stride;
  budget->threads = THREADS;
  budget->ctas_per_sm = 1;
  budget->launch_regs = arch->regs_per_sm / THREADS / 8 * 8;
  budget->regs_limit = own.keys_regs;
  plan_tiles(budget, &own, k);
  budget->regs_estimate = own.regs_sum + own.regs_s + own.regs_kv + ADDRESSES;
  memcpy(budget->own, &own, sizeof own);
}

/* ---- rules ---- */

static const struct ft_wgmma_backward_roles_knobs *knobs(const struct ft_rule_case *of) {
  return ft_wgmma_backward_roles_knobs(of->config);
}

static bool cluster_keys(const struct ft_rule_case *of) {
  return knobs(of)->block_n == BLOCKS * BLOCK_KEYS;
}

static bool step_queries(const struct ft_rule_case *of) {
  return knobs(of)->block_m == STEP_QUERIES;
}

/* Both warpgroups that sum up read a step's dO after the step's Q and before the next step's Q. */
static bool idle_stages(const struct ft_rule_case *of) {
  return knobs(of)->do_stages <= knobs(of)->q_stages;
}

static bool early_dq(const struct ft_rule_case *of) {
  return !knobs(of)->early_dq || ft_backward_has_sections(of->request);
}

static bool multicast(const struct ft_rule_case *of) {
  return !knobs(of)->multicast || !of->request->ragged;
}

static bool heads_inner(const struct ft_rule_case *of) {
  return !knobs(of)->heads_inner || ft_heads_inner_can_run(of->request);
}

static bool lone_heads(const struct ft_rule_case *of) {
  return !knobs(of)->heads_inner || ft_heads_inner_is_worth_trying(of->request);
}

#define READS(knob) FT_READS(wgmma_backward_roles, knob)
static const struct ft_rule rules[] = {
    {"cluster-keys", FT_CANNOT_RUN, cluster_keys,
     "each of two blocks has 64 keys, the m of wgmma, and one warpgroup holds their dK or dV",
     FT_READS_ANY},
    {"role-queries", FT_CANNOT_RUN, step_queries,
     "a warpgroup makes the dQ of 64 queries, the m of wgmma", FT_READS_ANY},
    {"roles-early-dq", FT_CANNOT_RUN, early_dq,
     "a list of ragged key tiles knows no L2 section; the gradients of sinks and of what a score "
     "captures are sums over all",
     READS(early_dq)},
    {"multicast", FT_CANNOT_RUN, multicast,
     "a box of a ragged sequence's rows ends where it ends, in more dimensions than multicast has",
     READS(multicast)},
    {"heads-inner", FT_CANNOT_RUN, heads_inner, FT_HEADS_INNER_SAYS, READS(heads_inner)},
    {"lone-heads", FT_NOT_WORTH_TRYING, lone_heads, FT_LONE_HEADS_SAYS, READS(heads_inner)},
    {"idle-stages", FT_NOT_WORTH_TRYING, idle_stages,
     "a step reads Q before dO, so more tiles of dO than of Q wait for Q", FT_READS_ANY},
};

/* ---- the default ---- */

/* Best first, as measured on an H200 (bench/ledger.md). With d = 256 only one stage of dO fits. */
static const struct ft_wgmma_backward_roles_knobs favourites[] = {
    {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 2, .dq_stages = 2},
    {TILE(64, 128), .q_stages = 2, .do_stages = 2, .ds_stages = 1, .dq_stages = 2},
    {TILE(64, 128), .q_stages = 2, .do_stages = 1, .ds_stages = 2, .dq_stages = 1},
    {TILE(64, 128), .q_stages = 2, .do_stages = 1, .ds_stages = 1, .dq_stages = 2},
};

/* Q and dO by multicast gained 1 to 5 % with 192 columns where nothing is masked, and nothing with
 * 160 and 256. */
static bool multicast_pays(const struct ft_request *request) {
  enum { NARROW = 160, WIDE = 192 };
  const int columns = max_int(request->head_dim, request->head_dim_v);
  return ft_heads_are_plain(request) && !ft_visibility_varies(request) && !request->dropout &&
         !request->deterministic && is_within(columns, NARROW + 1, WIDE);
}

/* The last kernel beside the last key tiles gained 1 to 4 % above 192 columns. With up to 160 it
 * gained as much where walks are neither causal nor longer than 4096 queries, and lost up to 2 % in
 * others. */
static bool early_dq_pays(const struct ft_request *request) {
  enum { NARROW = 160, WIDE = 192, QUERIES = 4096 };
  const int columns = max_int(request->head_dim, request->head_dim_v);
  if (!ft_backward_has_sections(request) || request->score != 0 || request->dropout ||
      request->deterministic)
    return false;
  return columns > WIDE || (columns <= NARROW && !request->causal && request->seqlen_q <= QUERIES);
}

static bool default_config(const struct ft_request *request, const struct ft_arch *arch,
                           struct ft_config *config) {
  enum { GROUP_COLUMNS = 1536 };
  for (int i = 0; i < FT_COUNT(favourites); ++i) {
    struct ft_wgmma_backward_roles_knobs knobs_of = favourites[i];
    knobs_of.heads_inner = ft_heads_inner_pays(request, GROUP_COLUMNS);
    knobs_of.multicast = multicast_pays(request);
    knobs_of.early_dq = early_dq_pays(request);
    *config = ft_config_make(&ft_wgmma_backward_roles_family, &knobs_of);
    if (ft_config_is_legal(config, request, arch)) return true;
  }
  return false;
}

const struct ft_family ft_wgmma_backward_roles_family = {
    .name = "wgmma_backward_roles",
    .pass = FT_BACKWARD,
    .instructions = "wgmma",
    .target_suffix = "a",
    .template_name = "wgmma_backward_roles.cu.in",
    .serves = serves,
    .schedule = ft_schedule_lpt,
    FT_FAMILY_TABLES,
    .plan = plan,
    .default_config = default_config,
};
