/* model.c: what a candidate should take, from what a multiprocessor can do per cycle.
 * in -> out: request + arch + config + registers -> microseconds by resource.
 *
 * One step (BLOCK_N keys of one block) costs cycles on each resource; the busiest sets the pace,
 * the others hide behind it as far as there are other warps to run meanwhile. Steps come in waves
 * of resident blocks. The constants below were fitted to 800 timings of seven requests on an H200
 * (forward, mma); what is good there orders candidates elsewhere too, and order is all it is for.
 * The wgmma family has a model of its own, model_wgmma.c. */
#include "tuner/model/model_parts.h"

#include <math.h>

#include "generator/families/mma_backward.h"
#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_forward.h"

enum {
  EXP_PER_CLK = 16, /* ex2 per cycle and multiprocessor: CUDA programming guide, throughput table */
  ISSUE_PER_CLK = 4, /* one instruction per quarter */
  SMEM_BYTES_PER_CLK = 128,
  L2_BYTES_PER_CLK = 96,     /* per multiprocessor */
  SOFTMAX_INSTRUCTIONS = 8,  /* per element of S: scale, ex2, max, sum, conversion, masking */
  DROPOUT_INSTRUCTIONS = 24, /* per element: an eighth of a Philox draw, compare, select */
  STEP_LATENCY = 300,        /* of a step, hidden by nothing: barriers, row maxima, copies */
  LOAD_LATENCY = 400,        /* the same where a single stage exposes the L2 round trip */
  BLOCK_LATENCY = 6000       /* a block's start and end: first loads, the write of O */
};

/* mma.sync in a loop with anything else reaches this share of its rate alone. */
static const double MMA_SHARE = 1 / 1.3;

/* Cycles of one step of one block, by resource. */
struct step {
  double mma, exp, issue, smem, l2, fixed;
};

double ft_or_default(double value, double otherwise) {
  return value > 0 ? value : otherwise;
}

double ft_cycles_per_us(const struct ft_arch *arch) {
  return ft_or_default(arch->clock_ghz, 1.5) * 1e3;
}

static struct step step_of(const struct ft_request *request, const struct ft_arch *arch,
                           const struct ft_mma_forward_knobs *k, const struct ft_budget *budget,
                           int spill_bytes) {
  const struct ft_mma_forward_budget *const own = ft_mma_forward_budget(budget);
  const double m = k->block_m, n = k->block_n, warps = k->warps;
  const double rows = own->warp_rows, d = own->d_pad, dv = own->dv_pad;
  struct step step = {0};
  step.mma = 2 * m * n * (d + dv) / ft_or_default(arch->mma_flops_per_clk, 1024);
  step.exp = m * n / EXP_PER_CLK;

  /* ldmatrix: every warp reads all of K and V, and its rows of Q where they are not in registers.
   */
  const double q_bytes = k->q_in_regs ? 0 : rows * d * 2;
  const double read = warps * (n * d * 2 + n * dv * 2 + q_bytes);
  const double written = n * (d + dv) * 2;
  step.smem = (read + written) / SMEM_BYTES_PER_CLK;
  step.l2 = n * (request->head_dim + request->head_dim_v) * 2 / L2_BYTES_PER_CLK;

  const double per_element = SOFTMAX_INSTRUCTIONS + (request->dropout ? DROPOUT_INSTRUCTIONS : 0);
  const double mma_instructions = m * n * (d + dv) / (16 * 8 * 16);
  step.issue = (m * n / 32 * per_element + mma_instructions + read / 512) / ISSUE_PER_CLK;
  /* A spilled byte is written and read once a step. */
  step.smem += 2.0 * spill_bytes * budget->threads / SMEM_BYTES_PER_CLK;
  step.fixed = k->stages == 1 ? LOAD_LATENCY : STEP_LATENCY;
  return step;
}

/* Share of a resource's work that hides behind the busiest one: with one warp in a quarter only
 * what the program itself overlaps, with more warps what their scheduler finds. */
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
  return resident * (busiest + exposed) + step->fixed;
}

static int packed_heads(const struct ft_request *request, const struct ft_config *config) {
  return ft_packed_heads(config, request->heads_q / request->heads_kv, request->seqlen_q);
}

struct ft_walk ft_walk_over(int64_t tiles, ft_steps_function *steps_of, const void *context) {
  enum { SAMPLES = 512 }; /* more would only smooth */
  const int64_t samples = tiles < SAMPLES ? tiles : SAMPLES;
  struct ft_walk walk = {0};
  for (int64_t sample = 0; sample < samples; sample++) {
    const int64_t tile = samples == tiles ? sample : (2 * sample + 1) * tiles / (2 * samples);
    const double steps = steps_of(context, tile);
    walk.mean += steps / (double)samples;
    walk.longest = fmax(walk.longest, steps);
  }
  return walk;
}

int64_t ft_causal_shift(const struct ft_request *request) {
  return request->causal == FT_CAUSAL_BOTTOM_RIGHT ? request->seqlen_k - request->seqlen_q : 0;
}

/* Query tiles under causal. */
struct query_tiles {
  int64_t rows, keys, shift;
  int packed, block_m, block_n;
  double density;
};

static double steps_of_query_tile(const void *context, int64_t tile) {
  const struct query_tiles *const t = context;
  const int64_t rows_end = (tile + 1) * t->block_m;
  const int64_t last = ((rows_end < t->rows ? rows_end : t->rows) + t->packed - 1) / t->packed;
  const double visible = fmin(fmax((double)(last + t->shift), 0), (double)t->keys);
  return ceil(visible / t->block_n) * t->density;
}

struct ft_walk ft_walk_of(const struct ft_request *request, const struct ft_config *config) {
  const double all = ceil((double)request->seqlen_k / ft_config_block_n(config));
  const double density = request->mask_rows > 0 ? request->mask_density : 1;
  if (request->causal == FT_CAUSAL_NONE) return (struct ft_walk){all * density, all * density};

  const int packed = packed_heads(request, config);
  const struct query_tiles context = {.rows = request->seqlen_q * packed,
                                      .keys = request->seqlen_k,
                                      .shift = ft_causal_shift(request),
                                      .packed = packed,
                                      .block_m = ft_config_block_m(config),
                                      .block_n = ft_config_block_n(config),
                                      .density = density};
  const int64_t tiles = (context.rows + context.block_m - 1) / context.block_m;
  return ft_walk_over(tiles, steps_of_query_tile, &context);
}

double ft_tiles_of_a_pair(const struct ft_request *request, const struct ft_config *config) {
  const double rows = (double)request->seqlen_q * packed_heads(request, config);
  return ceil(rows / ft_config_block_m(config));
}

double ft_pairs(const struct ft_request *request, const struct ft_config *config) {
  return (double)request->batch * request->heads_q / packed_heads(request, config);
}

double ft_tile_count(const struct ft_request *request, const struct ft_config *config) {
  return ft_pairs(request, config) * ft_tiles_of_a_pair(request, config);
}

double ft_compulsory_us(const struct ft_request *request, const struct ft_arch *arch) {
  const double queries = (double)request->batch * request->heads_q * (double)request->seqlen_q;
  const double keys = (double)request->batch * request->heads_kv * (double)request->seqlen_k;
  const double element = ft_dtype_bytes(request->dtype);
  const double bytes =
      (queries + keys) * (request->head_dim + request->head_dim_v) * element + queries * 4;
  return bytes / (ft_or_default(arch->dram_gbs, 500) * 1e3);
}

static struct ft_prediction model_mma(const struct ft_request *request, const struct ft_arch *arch,
                                      const struct ft_config *config, int registers,
                                      int spill_bytes) {
  const struct ft_mma_forward_knobs *const k = ft_mma_forward_knobs(config);
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  const int assumed = registers > 0 ? registers : ft_budget_registers(&budget);
  struct ft_prediction prediction = {.occupancy = ft_budget_occupancy(&budget, arch, assumed)};
  const double resident = fmax(1, prediction.occupancy);
  const double sms = fmax(1, arch->sm_count);
  const struct step step = step_of(request, arch, k, &budget, spill_bytes);
  const struct ft_walk walk = ft_walk_of(request, config);

  const double blocks =
      (double)request->batch * request->heads_q * ceil((double)request->seqlen_q / k->block_m);
  const double cycles_per_us = ft_cycles_per_us(arch);
  const double steps_per_sm = blocks * walk.mean / sms;
  prediction.waves = blocks / (sms * resident);
  prediction.mma_us = steps_per_sm * step.mma / cycles_per_us;
  prediction.exp_us = steps_per_sm * step.exp / cycles_per_us;
  prediction.issue_us = steps_per_sm * step.issue / cycles_per_us;
  prediction.smem_us = steps_per_sm * step.smem / cycles_per_us;
  prediction.l2_us = steps_per_sm * step.l2 / cycles_per_us;
  prediction.dram_us = ft_compulsory_us(request, arch);

  /* Full waves at full occupancy, then what is left, spread evenly. Blocks of unequal length run
   * longest first, so a wave's end is ragged by one block at most: no rounding up, but never less
   * than the longest. */
  const double full = floor(prediction.waves);
  const double rest = ceil((prediction.waves - full) * resident - 1e-9);
  const double at_full = step_cycles(&step, resident, k);
  const double at_rest = rest > 0 ? step_cycles(&step, rest, k) : 0;
  double cycles =
      walk.mean * (full * at_full + at_rest) + (full + (rest > 0)) * BLOCK_LATENCY / resident;
  if (walk.longest > walk.mean) {
    const double per_sm =
        fmax(prediction.waves * resident, ceil(blocks / sms) * (blocks < 4 * sms));
    const double even = per_sm * (walk.mean * at_full + BLOCK_LATENCY) / resident;
    const double longest = walk.longest * step_cycles(&step, 1, k) + BLOCK_LATENCY;
    cycles = fmax(even, longest);
  }
  prediction.us = fmax(cycles / cycles_per_us, prediction.dram_us);
  return prediction;
}

struct ft_prediction ft_model(const struct ft_request *request, const struct ft_arch *arch,
                              const struct ft_config *config, int registers, int spill_bytes) {
  if (config->family == &ft_wgmma_forward_family)
    return ft_model_wgmma(request, arch, config, spill_bytes);
  if (config->family == &ft_mma_backward_family)
    return ft_model_backward(request, arch, config, registers, spill_bytes);
  return model_mma(request, arch, config, registers, spill_bytes);
}
