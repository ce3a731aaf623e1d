/* model_mma_forward.c: what an mma_forward candidate should take, from what a multiprocessor can do
 * per cycle.
 * in -> out: request + arch + config + registers -> microseconds by resource.
 *
 * One step (block_n keys of one block) costs cycles on each resource. The busiest resource sets the
 * pace; the others hide behind it as far as there are other warps to run meanwhile. Steps come in
 * waves of resident blocks, and a step lasts until the next K and V are there. The constants were
 * fitted to 800 timings of seven requests on an H200; what loads take, to decodes.
 * On other GPUs they order candidates well, and order is all that the model is for. */
#include <math.h>

#include "generator/families/mma_forward.h"
#include "generator/families/packed_heads.h"
#include "generator/model/model_families.h"
#include "generator/model/rates.h"
#include "generator/model/walk.h"

enum {
  L2_BYTES_PER_CLK = 96,    /* per multiprocessor */
  SOFTMAX_INSTRUCTIONS = 8, /* per element of S: scale, ex2, max, sum, conversion, masking */
  DRAW_INSTRUCTIONS = 190,  /* of a draw and its use, for two rows of 16 of as many keys */
  WIDEN_INSTRUCTIONS = 4,   /* of two numbers of e4m3: conversions, permutation */
  STEP_LATENCY = 550,       /* of a step, hidden by nothing: barriers, row maxima, copies */
  BLOCK_LATENCY = 5250      /* a block's start and end: first loads, the write of O */
};

/* mma.sync in a loop with anything else reaches this share of its rate alone. */
static const double MMA_SHARE = 1 / 1.3;

/* Cycles of one step of one block, by resource. */
struct step {
  double mma, exp, issue, smem, l2, fixed;
  struct ft_load load;
};

/* Instructions for each product of 16x8x16. Where there is a mma.sync of e4m3, half of one, as it
 * is twice as deep, and the bytes of V are sorted by column; else a mma.sync of fp16, and e4m3 is
 * turned into fp16 besides. K and V are sorted and turned once for all rows of a warp, and each
 * product has its share of that. */
static double e4m3_instructions(const struct ft_arch *arch, double rows) {
  const double share = 16 / fmax(16, rows);
  return ft_has_mma_of_e4m3(arch) ? 0.5 + 0.5 * share : 1 + 2.5 * share;
}

/* Of dropout, for an element. A draw serves the keys of a step up to 64 and 32 rows of a warp. */
static double dropout_instructions(const struct ft_request *request,
                                   const struct ft_mma_forward_knobs *k, int rows) {
  const int n = k->block_n, keys = n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : 16;
  if (!request->dropout) return 0;
  return DRAW_INSTRUCTIONS * (rows % 32 == 0 ? 2.0 : 4.0) / keys;
}

static struct step step_of(const struct ft_request *request, const struct ft_arch *arch,
                           const struct ft_mma_forward_knobs *k, const struct ft_budget *budget,
                           const struct ft_score_cost *score, int spill_bytes) {
  const struct ft_mma_forward_budget *const own = ft_mma_forward_budget(budget);
  const double m = k->block_m, n = k->block_n, warps = k->warps;
  const double rows = own->warp_rows, d = own->d_pad, dv = own->dv_pad;
  struct step step = {0};
  step.mma = 2 * m * n * (d + dv) / ft_or_default(ft_mma_flops_per_clk(arch, request->dtype), 1024);
  step.exp = m * n * (1 + score->special) / FT_EXP_PER_CLK;

  /* ldmatrix: every warp reads all of K and V, or its share of their rows, and its rows of Q where
   * they are not in registers. */
  const double bytes = ft_dtype_bytes(request->dtype), of_kv = ft_dtype_bytes(ft_kv_dtype(request));
  const double q_bytes = k->q_in_regs ? 0 : rows * d * bytes;
  const double own_keys = n / fmax(1, k->key_warps);
  const double read = warps * (own_keys * (d + dv) * of_kv + q_bytes);
  const double written = n * (d + dv) * of_kv;
  step.smem = (read + written) / FT_SMEM_BYTES_PER_CLK;
  step.l2 = n * (request->head_dim + request->head_dim_v) * of_kv / L2_BYTES_PER_CLK;

  const double per_element =
      SOFTMAX_INSTRUCTIONS + score->instructions + dropout_instructions(request, k, own->warp_rows);
  const double of_product = request->dtype == FT_E4M3
                                ? e4m3_instructions(arch, rows)
                                : ft_fragment_instructions(request->dtype, rows);
  const double mma_instructions = of_product * m * n * (d + dv) / (16 * 8 * 16);
  /* Each warp turns what it multiplies by into its operands' dtype, two elements at a time. */
  const double widened = of_kv < bytes ? warps * own_keys * (d + dv) / 64 * WIDEN_INSTRUCTIONS : 0;
  step.issue =
      (m * n / 32 * per_element + mma_instructions + read / 512 + widened) / FT_ISSUE_PER_CLK +
      ft_read_cycles(m * n, score->reads);
  /* A spilled byte is written and read once a step. */
  step.smem += 2.0 * spill_bytes * budget->threads / FT_SMEM_BYTES_PER_CLK;
  step.fixed = STEP_LATENCY;
  return step;
}

/* Share of a resource's work that hides behind the busiest one. With one warp in a quarter it is
 * what the program itself overlaps; with more warps, what their scheduler finds. */
static double hidden_share(double warps_per_quarter, bool overlap) {
  const double by_warps = 1 - 0.35 / fmax(warps_per_quarter, 0.25);
  const double by_program = overlap ? 0.7 : 0.1;
  return fmax(by_program, fmin(by_warps + (overlap ? 0.05 : 0), 0.85));
}

/* Cycles until `resident` blocks of a multiprocessor have all done one step. */
static double step_cycles(const struct step *step, double resident,
                          const struct ft_mma_forward_knobs *k) {
  const double warps_per_quarter = resident * k->warps / 4;
  /* Fewer warps than quarters leave units idle. */
  const double idle = fmax(1, 1 / warps_per_quarter);
  const double mma = step->mma * idle / MMA_SHARE, softmax = step->exp * idle;
  const double issue = step->issue * idle;
  const double busiest = fmax(fmax(mma, softmax), fmax(issue, fmax(step->smem, step->l2)));
  const double sum = mma + softmax + issue + step->smem + step->l2;
  const double exposed =
      (1 - hidden_share(warps_per_quarter, k->overlap_qk != 0)) * (sum - busiest);
  const double computed = resident * (busiest + exposed) + step->fixed;
  /* While a step is computed, the next ones are on their way, one less than there are stages. */
  const double ahead = k->stages - 1, loaded = resident * step->load.received;
  if (ahead < 1) return fmax(computed + step->load.waited - step->load.received, loaded);
  return fmax(computed, fmax(loaded, step->load.waited / ahead));
}

/* Cycles until the last block is done. Blocks of equal length come in full waves at full occupancy,
 * and the rest is spread evenly. Blocks of unequal length run longest first. A wave of them ends
 * uneven by one block at most, so nothing is rounded up, but all together never take less than the
 * longest. */
static double cycles_of_all(const struct ft_request *request, const struct step *step,
                            const struct ft_mma_forward_knobs *k, struct ft_walk walk,
                            double blocks, double sms, double resident) {
  const double waves = blocks / (sms * resident);
  const double at_full = step_cycles(step, resident, k);
  if (walk.longest > walk.mean) {
    const double per_sm = fmax(blocks / sms, ceil(blocks / sms) * (blocks < 4 * sms));
    const double even = per_sm * (walk.mean * at_full + BLOCK_LATENCY) / resident;
    const double longest = walk.longest * step_cycles(step, 1, k) + BLOCK_LATENCY;
    return ft_cycles_of_uneven(request, even, longest);
  }
  const double full = floor(waves);
  const double rest = ceil((waves - full) * resident - 1e-9);
  const double at_rest = rest > 0 ? step_cycles(step, rest, k) : 0;
  /* The first blocks begin together. The start of later ones is hidden by those beside them. */
  const double begun = 1 + fmax(0, full + (rest > 0) - 1) / resident;
  return walk.mean * (full * at_full + at_rest) + begun * BLOCK_LATENCY;
}

/* Cycles until the last cluster is done. Those of a round begin and end together, so nothing hides
 * a block's start. */
static double cycles_of_clusters(const struct step *step, const struct ft_mma_forward_knobs *k,
                                 const struct ft_arch *arch, struct ft_walk walk, double tiles,
                                 double resident) {
  const double at_once = ft_resident_clusters(arch, k->split_keys, resident);
  const double rounds = ceil(tiles / at_once);
  const double blocks = fmin(tiles, at_once) * k->split_keys;
  const double beside = fmin(resident, ceil(blocks / fmax(1, arch->sm_count)));
  return rounds * (walk.longest * step_cycles(step, beside, k) + BLOCK_LATENCY);
}

/* Blocks with equal shares of all steps, all resident, are like as many tiles with one walk each.
 */
static void share_steps(struct ft_divided_walk *divided, double steps, double tiles, double slots) {
  const double blocks = fmax(1, fmin(steps, slots)), share = steps / blocks;
  divided->walk = (struct ft_walk){.mean = share, .longest = share};
  divided->parts = blocks / tiles;
}

static struct ft_prediction predict(const struct ft_modelled *of) {
  const struct ft_request *const request = of->request;
  const struct ft_arch *const arch = of->arch;
  const struct ft_mma_forward_knobs *const k = ft_mma_forward_knobs(of->config);
  const struct ft_budget budget = ft_budget_of(request, of->config, arch);
  const int registers = of->registers > 0 ? of->registers : ft_budget_registers(&budget);
  struct ft_prediction prediction = {.occupancy = ft_budget_occupancy(&budget, arch, registers)};
  const double sms = fmax(1, arch->sm_count);
  const struct ft_score_cost score = ft_cost_with_visible(request, &of->score, of->score.score);
  struct step step = step_of(request, arch, k, &budget, &score, of->spill_bytes);
  const struct ft_pack pack = ft_pack_of(of->config, request);
  const int packed = 1 << pack.bits;
  const struct ft_tiling tiling = {.block_m = k->block_m, .block_n = k->block_n, .packed = packed};
  const double tiles = (double)request->batch * request->heads_q / pack.heads *
                       ceil((double)request->seqlen_q * packed / k->block_m);
  struct ft_divided_walk divided = {.walk = ft_walk_of_queries(request, tiling), .parts = 1};
  struct ft_walks walks = {0};
  if (k->split_keys) {
    const double steps = tiles * divided.walk.mean;
    ft_mma_forward_walks(&walks, request, of->config, &budget, arch);
    divided = ft_divide_walk(request, arch, divided.walk, pack, &walks);
    if (walks.shared) share_steps(&divided, steps, tiles, sms * walks.blocks_per_sm);
  }
  const double resident = fmax(1, walks.shared ? walks.blocks_per_sm : prediction.occupancy);
  const struct ft_walk walk = divided.walk;
  const double blocks = tiles * divided.parts;
  /* Where some multiprocessors have a block more than others, these read faster. */
  const double beside = fmin(resident, ceil(blocks / sms));
  step.load = ft_load_of(request, arch,
                         &(struct ft_loads){.bytes = step.l2 * L2_BYTES_PER_CLK,
                                            .steps = blocks * walk.mean,
                                            .busy = fmin(sms, blocks / beside),
                                            .beside = L2_BYTES_PER_CLK,
                                            .piece = ft_mma_forward_piece(request, &budget)});
  const double scale = blocks * walk.mean / sms / ft_cycles_per_us(arch); /* of a step -> of all */
  prediction.waves = blocks / (sms * resident);
  prediction.mma_us = scale * step.mma;
  prediction.exp_us = scale * step.exp;
  prediction.issue_us = scale * step.issue;
  prediction.smem_us = scale * step.smem;
  prediction.l2_us = scale * step.l2;
  prediction.dram_us = ft_compulsory_us(request, arch);
  const double cycles = k->split_keys > 1
                            ? cycles_of_clusters(&step, k, arch, walk, tiles, resident)
                            : cycles_of_all(request, &step, k, walk, blocks, sms, resident);
  /* Nothing hides Q of the first wave, nor O of the last one. */
  const double exposed_us = ft_rows_us(request, arch) / fmax(1, prediction.waves);
  const double us = cycles / ft_cycles_per_us(arch) + exposed_us;
  prediction.us = fmax(us, prediction.dram_us) + divided.merge_us;
  prediction.walk = (struct ft_predicted_walk){
      .steps = walk.mean,
      .longest = walk.longest,
      .parts = divided.parts,
      .merge_us = divided.merge_us,
      .rounds = k->split_keys > 1 ? tiles / ft_resident_clusters(arch, k->split_keys, resident)
                                  : prediction.waves,
      .ahead_bytes = beside * fmax(1, k->stages - 1) * step.l2 * L2_BYTES_PER_CLK};
  return prediction;
}

const struct ft_family_model ft_mma_forward_model = {.family = &ft_mma_forward_family,
                                                     .predict = predict};
