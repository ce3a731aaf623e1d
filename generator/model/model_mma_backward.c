/* model_mma_backward.c: what the three kernels of a backward candidate should take.
 * in -> out: request + arch + config + registers -> microseconds by resource.
 *
 * A step of the main kernel is block_m queries of one head with block_n keys: five products, of
 * which the warps read their operands from shared memory. Its busiest resource sets the pace; the
 * two roles hide most of the others behind it. The first and the last kernel move bytes, or make dQ
 * in a pass of its own. The constants are set by hand. */
#include <math.h>

#include "generator/families/mma_backward.h"
#include "generator/model/model_families.h"
#include "generator/model/rates.h"
#include "generator/model/walk.h"

enum {
  L2_BYTES_PER_CLK = 64,    /* per multiprocessor; adds are slower than loads */
  ELEMENT_INSTRUCTIONS = 7, /* per score: scale, ex2, product, conversions, exchange, masking */
  DROPOUT_INSTRUCTIONS = 12,
  BARRIER_LATENCY = 250,  /* of each barrier of all warps in a step */
  LOAD_LATENCY = 900,     /* of a step whose Q and dO are not there yet */
  EXCHANGE_LATENCY = 120, /* of P, for each part of a step */
  BLOCK_LATENCY = 7000    /* a block's start and end: K and V, the write of dK and dV */
};

static const double MMA_SHARE = 0.85; /* of its rate that mma.sync reaches beside anything else */
static const double LATE_SHARE =
    0.25; /* share of the longest block's time for which others wait at the end */

/* Cycles of one step of one block, by resource. */
struct step {
  double mma, exp, issue, smem, l2, fixed;
};

/* Bytes that the warps read from shared memory for the products of a step, without those for dQ. */
static double operand_bytes(const struct ft_mma_backward_knobs *k, double bytes,
                            const struct ft_mma_backward_budget *own) {
  const double n = k->block_n, m = k->block_m, groups = own->key_warps;
  const double d = own->d_pad, dv = own->dv_pad, columns = k->column_warps;
  /* Scores: rows of K or V for each part of the queries, Q or dO for each group of warps with the
   * same keys. */
  const double rows = k->kv_in_regs ? 0 : n * columns * k->query_parts;
  const double scores = (rows + m * groups) * (d + dv) * bytes;
  /* Sums: Q and dO once for each group; P and dS from registers, or by every warp. */
  const double sums = (m * groups * (d + dv) + (columns > 1 ? 2 * n * m * columns : 0)) * bytes;
  const double exchanged = 3 * n * m * bytes; /* P written and read, dS written */
  return scores + sums + exchanged;
}

static double dq_bytes(const struct ft_mma_backward_knobs *k, double bytes,
                       const struct ft_mma_backward_budget *own) {
  const double rows = own->dq_warp_rows, row_warps = k->block_m / rows;
  const double columns = own->d_pad * row_warps / k->warps;
  return k->warps * (rows + fmax(columns, 16)) * k->block_n * bytes;
}

static struct step step_of(const struct ft_request *request, const struct ft_arch *arch,
                           const struct ft_mma_backward_knobs *k, const struct ft_budget *budget,
                           const struct ft_score_cost *score, int spill_bytes) {
  const struct ft_mma_backward_budget *const own = ft_mma_backward_budget(budget);
  const double m = k->block_m, n = k->block_n, d = own->d_pad, dv = own->dv_pad;
  const bool adds = k->dq_mode != FT_DQ_SECOND_PASS;
  const double depth = 2 * d + 2 * dv + (adds ? d : 0);
  struct step step = {0};
  step.mma = 2 * m * n * depth / ft_or_default(arch->mma_flops_per_clk, 1024) *
             ft_dtype_mma_cost(request->dtype);
  step.exp = m * n * (1 + score->special) / FT_EXP_PER_CLK;
  const double bytes = ft_dtype_bytes(request->dtype);
  const double copied = m * (d + dv) * bytes;
  const double read = operand_bytes(k, bytes, own) + (adds ? dq_bytes(k, bytes, own) : 0);
  step.smem = (read + copied + 2.0 * spill_bytes * budget->threads) / FT_SMEM_BYTES_PER_CLK;
  step.l2 = (copied + (adds ? m * d * 4 : 0)) / L2_BYTES_PER_CLK;
  const double per_element =
      ELEMENT_INSTRUCTIONS + score->instructions + (request->dropout ? DROPOUT_INSTRUCTIONS : 0);
  const double mma_instructions =
      ft_fragment_instructions(request->dtype, 16) * m * n * depth / (16 * 8 * 16);
  step.issue = (m * n / 32 * per_element + mma_instructions + read / 512) / FT_ISSUE_PER_CLK +
               ft_read_cycles(m * n, score->reads);
  step.fixed = (k->deferred_dq ? 1 : 2) * BARRIER_LATENCY + k->query_parts * EXCHANGE_LATENCY +
               (k->stages == 1 ? LOAD_LATENCY : 0);
  return step;
}

/* Cycles until `resident` blocks of a multiprocessor have all done one step. */
static double step_cycles(const struct step *step, double resident,
                          const struct ft_mma_backward_knobs *k) {
  const double warps_per_quarter = resident * k->warps / 4;
  const double idle = fmax(1, 1 / warps_per_quarter);
  const double mma = step->mma * idle / MMA_SHARE, exp = step->exp * idle;
  const double issue = step->issue * idle;
  const double busiest = fmax(fmax(mma, exp), fmax(issue, fmax(step->smem, step->l2)));
  const double sum = mma + exp + issue + step->smem + step->l2;
  const double exposed = 0.5 / fmax(warps_per_quarter, 1) * (sum - busiest);
  return resident * (busiest + exposed) + step->fixed;
}

/* The first and the last kernel: what they read and write, and the products of a second pass. */
static double other_kernels_us(const struct ft_request *request, const struct ft_arch *arch,
                               const struct ft_mma_backward_knobs *k, int dq_sums, double mma_us) {
  const double queries = (double)request->batch * request->heads_q * (double)request->seqlen_q;
  const double d = request->head_dim, dv = request->head_dim_v;
  const double rate = ft_dram_bytes_per_us(arch);
  if (k->dq_mode == FT_DQ_SECOND_PASS)
    return queries * dv * 4 / rate + mma_us * (2 * d + dv) / (2 * (d + dv)) * 2;
  return queries * (dv * 4 + dq_sums * (d * 4 + d * 4) + d * 2) / rate;
}

static struct ft_prediction predict(const struct ft_modelled *of) {
  const struct ft_request *const request = of->request;
  const struct ft_arch *const arch = of->arch;
  const struct ft_mma_backward_knobs *const k = ft_mma_backward_knobs(of->config);
  const struct ft_budget budget = ft_budget_of(request, of->config, arch);
  const int registers = of->registers > 0 ? of->registers : ft_budget_registers(&budget);
  const struct ft_score_cost score = ft_cost_with_visible(request, &of->score, of->score.slope);
  const struct step step = step_of(request, arch, k, &budget, &score, of->spill_bytes);
  const struct ft_tiling tiling = {.block_m = k->block_m, .block_n = k->block_n, .packed = 1};
  const struct ft_walk walk = ft_walk_of_keys(request, tiling);
  struct ft_prediction prediction = {.occupancy = ft_budget_occupancy(&budget, arch, registers)};
  const double resident = fmax(1, prediction.occupancy), sms = fmax(1, arch->sm_count);
  const double blocks =
      (double)request->batch * request->heads_kv * ceil((double)request->seqlen_k / k->block_n);
  const double cycles_per_us = ft_cycles_per_us(arch);
  const double scale = blocks * walk.mean / sms / cycles_per_us; /* cycles of a step -> us of all */
  prediction.waves = blocks / (sms * resident);
  prediction.mma_us = scale * step.mma;
  prediction.exp_us = scale * step.exp;
  prediction.issue_us = scale * step.issue;
  prediction.smem_us = scale * step.smem;
  prediction.l2_us = scale * step.l2;
  const double others = other_kernels_us(request, arch, k, ft_mma_backward_budget(&budget)->dq_sums,
                                         prediction.mma_us);
  prediction.dram_us =
      2 * ft_compulsory_us(request, arch) + (k->dq_mode == FT_DQ_SECOND_PASS ? 0 : others);

  /* Blocks that are alike end together. Otherwise the longest run first, or, where adds are
   * ordered, last. */
  const bool differ = walk.longest > walk.mean;
  const double rounds = differ ? prediction.waves : ceil(prediction.waves);
  const double late = differ && k->dq_mode == FT_DQ_ORDERED ? LATE_SHARE * walk.longest : 0;
  const double even =
      (rounds * walk.mean + late) * step_cycles(&step, resident, k) + rounds * BLOCK_LATENCY;
  const double longest = walk.longest * step_cycles(&step, 1, k) + BLOCK_LATENCY;
  prediction.us = fmax(fmax(even, longest) / cycles_per_us + others, prediction.dram_us);
  prediction.walk = (struct ft_predicted_walk){
      .steps = walk.mean, .longest = walk.longest, .parts = 1, .rounds = prediction.waves};
  return prediction;
}

const struct ft_family_model ft_mma_backward_model = {.family = &ft_mma_backward_family,
                                                      .predict = predict};
