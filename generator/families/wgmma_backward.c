/* wgmma_backward.c: the gradients by wgmma.
 * in -> out: request + config + arch -> budget, broken rules. */
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
      own->smem_dq_offset + (k->dq_adds == FT_DQ_FROM_REGISTERS ? 0 : max_int(1, own->dq_stages)) *
                                k->block_m * own->d_pad * WORD;
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
  const int left = pool - own->loader_regs - DQ_BESIDE - (k->loads_beside_dq ? DQ_LOADS : 0) -
                   (k->dq_turned ? k->block_n / 4 : 0);
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
      .dq_stages = request->deterministic                  ? ADDERS
                   : k->dq_adds == FT_DQ_BESIDE_THE_LOADER ? 1
                                                           : 0,
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
  const bool stores_beside = knobs(of)->direct_store || knobs(of)->persistent == FT_STREAMED;
  return !knobs(of)->persistent ||
         (stores_beside && !knobs(of)->loads_beside_dq && !of->request->deterministic);
}

/* What the loop over the steps of all key tiles has no code for. dK and dV are staged in turn where
 * K was. */
static bool streamed(const struct ft_rule_case *of) {
  return knobs(of)->persistent != FT_STREAMED ||
         (!of->request->ragged && !of->request->dropout && of->request->score == 0 &&
          !knobs(of)->kv_in_regs && !knobs(of)->early_scores &&
          (knobs(of)->direct_store || own_budget(of)->dv_panels <= own_budget(of)->d_panels) &&
          knobs(of)->q_stages + knobs(of)->ds_stages < FT_STREAMED_NOTES);
}

static bool wide_outputs(const struct ft_rule_case *of) {
  return !ft_outputs_are_wide(of->request) || knobs(of)->direct_store;
}

static bool early_dq(const struct ft_rule_case *of) {
  return !knobs(of)->early_dq ||
         (knobs(of)->persistent != FT_PERSISTENT && ft_backward_has_sections(of->request));
}

static bool parts(const struct ft_rule_case *of) {
  return knobs(of)->part_steps == 0 ||
         (of->request->mask_rows > 0 && knobs(of)->persistent != FT_PERSISTENT);
}

/* Whether a warp beside the loader has a walk of its own to add by, and nothing else to do. */
static bool adds(const struct ft_rule_case *of) {
  const struct ft_wgmma_backward_knobs *const k = knobs(of);
  if (of->request->deterministic) return k->dq_adds == FT_DQ_BY_ITS_WARPS;
  return k->dq_adds != FT_DQ_BESIDE_THE_LOADER ||
         (!k->loads_beside_dq && k->persistent == FT_ONE_TILE && !of->request->dropout);
}

/* K^T is one operand of 64 rows. */
static bool turned(const struct ft_rule_case *of) {
  return !knobs(of)->dq_turned ||
         (of->request->head_dim == FT_PANEL_COLUMNS && !ft_outputs_are_wide(of->request) &&
          knobs(of)->persistent != FT_PERSISTENT);
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

static bool heads_inner(const struct ft_rule_case *of) {
  return !knobs(of)->heads_inner || ft_heads_inner_can_run(of->request);
}

/* As measured, where dQ of 128 queries is made between two waits. */
static bool red_steps(const struct ft_rule_case *of) {
  enum { ROWS = 128 };
  return knobs(of)->dq_adds != FT_DQ_FROM_REGISTERS || knobs(of)->block_m >= ROWS;
}

static bool lone_heads(const struct ft_rule_case *of) {
  return !knobs(of)->heads_inner || ft_heads_inner_is_worth_trying(of->request);
}

static bool long_tile(const struct ft_rule_case *of) {
  return ft_half_a_tile_is_used(of->request->seqlen_q, knobs(of)->block_m) &&
         ft_half_a_tile_is_used(of->request->seqlen_k, knobs(of)->block_n);
}

#define READS(knob) FT_READS(wgmma_backward, knob)
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
     "with persistent=1 the next K and V take the place where dK and dV would be staged, so it "
     "needs direct_store; loads_beside_dq and deterministic adds serve one key tile a block",
     FT_READS_ANY},
    {"streamed", FT_CANNOT_RUN, streamed,
     "one loop over the steps of all key tiles has no ragged lengths, dropout and scores, no rows "
     "of K and V in registers and no early S; the loader has notes of 8 steps; without "
     "direct_store dV is staged where K was",
     FT_READS_ANY},
    {"wide-outputs", FT_CANNOT_RUN, wide_outputs,
     "dK and dV in fp32 have no room where K and V were: they go from registers to global memory",
     FT_READS_ANY},
    {"early-dq", FT_CANNOT_RUN, early_dq,
     "a persistent block and a list of ragged key tiles know no L2 section; the gradients of sinks "
     "and of what a score captures are sums over all",
     FT_READS_ANY},
    {"adds", FT_CANNOT_RUN, adds,
     "ordered adds have their own warps; without order a warp beside the loader adds for one key "
     "tile a block, where nobody else needs it",
     READS(dq_adds) | READS(loads_beside_dq) | READS(persistent)},
    {"turned", FT_CANNOT_RUN, turned,
     "K^T in registers has 64 rows, the m of wgmma, of one key tile a loop; the last kernel turns "
     "dQ around in shared memory, in 16 bits",
     READS(dq_turned) | READS(persistent)},
    {"parts", FT_CANNOT_RUN, parts,
     "walks are divided where the lists of a block mask say that some are longer than others; "
     "persistent blocks take whole ones",
     FT_READS_ANY},
    {"pacing", FT_CANNOT_RUN, pacing, "it takes two consumers or more to be out of step",
     FT_READS_ANY},
    {"heads-inner", FT_CANNOT_RUN, heads_inner, FT_HEADS_INNER_SAYS, READS(heads_inner)},
    {"uneven-stages", FT_NOT_WORTH_TRYING, uneven_stages,
     "Q and dO of a step are read together, so stages of one alone wait for the other",
     FT_READS_ANY},
    {"consumer-registers", FT_NOT_WORTH_TRYING, ft_registers_suffice,
     "sums, scores and P must fit the registers that a consumer can claim", FT_READS_ANY},
    {"streamed-walks", FT_NOT_WORTH_TRYING, streams_short_walks,
     "one loop over the steps of all key tiles serves short walks, and heads of up to 64 columns",
     FT_READS_ANY},
    {"red-steps", FT_NOT_WORTH_TRYING, red_steps,
     "adds from registers gained in steps of 128 queries alone", READS(dq_adds) | READS(block_m)},
    {"lone-heads", FT_NOT_WORTH_TRYING, lone_heads, FT_LONE_HEADS_SAYS, READS(heads_inner)},
    {"long-tile", FT_NOT_WORTH_TRYING, long_tile,
     "more than half of the rows would lie beyond the last query or key", FT_READS_ANY},
};

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
    .default_config = ft_wgmma_backward_default,
};
