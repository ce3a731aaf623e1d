/* model_wgmma.c: what a wgmma candidate should take.
 * in -> out: request + arch + config -> microseconds by resource.
 *
 * One block stays on each multiprocessor and walks over tiles. In a step the consumers make block_m
 * x block_n scores: the matrix unit one part, the softmax of another beside it, as far as there are
 * other scores to work on meanwhile, of the next step or of other warpgroups. K and V come in the
 * background. The constants are set by hand, so that published kernels of this kind
 * (FlashAttention-3 with 64, 128 and 256 columns on an H100) come out at their published speed
 * within a tenth. */
#include "tuner/model_parts.h"

#include <math.h>

enum {
  MMA_FLOPS_PER_CLK = 4096, /* dense, per multiprocessor: data sheets of the H100 */
  EXP_PER_CLK = 16,         /* as in model.c */
  ISSUE_PER_CLK = 4,
  SMEM_BYTES_PER_CLK = 128,
  L2_BYTES_PER_CLK = 96,
  SOFTMAX_INSTRUCTIONS = 5, /* per element of S: maximum, scale, ex2, sum, half a conversion */
  DROPOUT_INSTRUCTIONS = 6, /* per element: a share of a Philox draw, compare, select */
  STEP_LATENCY = 150,       /* of a step, hidden by nothing: barriers, maxima of rows */
  TILE_LATENCY = 900,       /* of a tile: its place, its statistics, the write of O */
  Q_LATENCY = 900           /* of a tile whose Q is not there yet */
};

static const double MMA_SHARE = 0.9;  /* of its rate that wgmma reaches beside anything else */
static const double LATE_SHARE = 0.1; /* of the steps in which O is rescaled if that is put off */

/* Cycles of one step of a block, by resource; softmax: by exponentials and issue together. */
struct step {
  double mma, exp, issue, softmax, smem, l2;
};

static struct step step_of(const struct ft_request *request, const struct ft_config *config,
                           const struct ft_budget *budget, int spill_bytes) {
  const double m = config->block_m, n = config->block_n;
  const double d = budget->d_pad, dv = budget->dv_pad, consumers = budget->consumers;
  struct step step = {0};
  step.mma = 2 * m * n * (d + dv) / MMA_FLOPS_PER_CLK;
  step.exp = m * n / EXP_PER_CLK;
  const double per_element = SOFTMAX_INSTRUCTIONS + (request->dropout ? DROPOUT_INSTRUCTIONS : 0);
  const double rescale = m * dv * (config->rescale_late ? LATE_SHARE : 1);
  step.issue = (m * n * per_element + rescale) / 32 / ISSUE_PER_CLK;
  step.softmax = fmax(step.exp, step.issue) + fmin(step.exp, step.issue) / 3;

  /* Each warpgroup reads K and V for itself, and its rows of Q; TMA writes whole panels. */
  const double read = consumers * (64 * d + n * (d + dv)) * 2;
  const double written = n * 128 * (budget->d_panels + budget->dv_panels);
  const double spilled = 2.0 * spill_bytes * budget->threads;
  step.smem = (read + written + spilled) / SMEM_BYTES_PER_CLK;
  step.l2 = n * (request->head_dim + request->head_dim_v) * 2 / L2_BYTES_PER_CLK;
  return step;
}

/* What is not hidden of the smaller one of products and softmax. */
static double exposed(const struct step *step, int consumers) {
  static const double shares[] = {1, 0.65, 0.45, 0.45};
  return shares[consumers >= 1 && consumers <= 3 ? consumers : 0] *
         fmin(step->mma / MMA_SHARE, step->softmax);
}

static double step_cycles(const struct step *step, int consumers) {
  const double busiest =
      fmax(fmax(step->mma / MMA_SHARE, step->softmax), fmax(step->smem, step->l2));
  return busiest + exposed(step, consumers) + STEP_LATENCY;
}

/* Of a tile beyond its steps: the first S has no softmax beside it and the last softmax no S, but
 * for those of the neighbouring tiles. */
static double tile_cycles(const struct ft_config *config, const struct step *step) {
  const double alone = config->overlap_tiles ? 0 : (step->mma + step->softmax) / 2;
  return TILE_LATENCY + alone + (config->q_stages < 2 ? Q_LATENCY : 0);
}

struct ft_prediction ft_model_wgmma(const struct ft_request *request, const struct ft_arch *arch,
                                    const struct ft_config *config, int spill_bytes) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  const struct step step = step_of(request, config, &budget, spill_bytes);
  const struct ft_walk walk = ft_walk_of(request, config);
  const double tiles = ft_tile_count(request, config), sms = fmax(1, arch->sm_count);
  const double cycles_per_us = ft_cycles_per_us(arch);
  const double scale = tiles * walk.mean / sms / cycles_per_us; /* cycles of a step -> us of all */
  struct ft_prediction prediction = {
      .mma_us = scale * step.mma,
      .exp_us = scale * step.exp,
      .issue_us = scale * step.issue,
      .smem_us = scale * step.smem,
      .l2_us = scale * step.l2,
      .dram_us = ft_compulsory_us(request, arch),
      .waves = tiles / sms,
      .occupancy = ft_budget_occupancy(&budget, arch, ft_budget_registers(&budget))};

  /* Tiles that are alike end together; of others the longest come first, and their ends are ragged
   * by less than one. */
  const double one = step_cycles(&step, budget.consumers), more = tile_cycles(config, &step);
  const double rounds = walk.longest > walk.mean ? prediction.waves : ceil(prediction.waves);
  const double cycles = fmax(rounds * (walk.mean * one + more), walk.longest * one + more);
  prediction.us = fmax(cycles / cycles_per_us, prediction.dram_us);
  return prediction;
}
