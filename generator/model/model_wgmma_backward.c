/* model_wgmma_backward.c: what the three kernels of a wgmma_backward candidate should take.
 * in -> out: request + arch + config + registers -> microseconds by resource.
 *
 * A step of the main kernel is block_m queries of one head with block_n keys: five products. Tensor
 * cores and shared memory, from which products and pointwise work read, are nearly equally busy and
 * hide each other in part. Shared memory is counted in wavefronts, 128 bytes a clock: a product of
 * depth 16 takes N / 4 for B and, where A is in shared memory, 16 for each 64 rows of A. The
 * constants were set by hand beside a prototype's steps on an H200 (2867, 1975 and 3190 cycles with
 * d = 64 of 192 and 128 keys and d = 128), and beside the variants that bench/ledger.md tells of.
 */
#include <math.h>

#include "generator/families/wgmma_backward.h"
#include "generator/model/model_families.h"
#include "generator/model/rates.h"
#include "generator/model/tiles_in_order.h"

enum {
  MMA_FLOPS_PER_CLK = 4096,  /* dense, per multiprocessor: data sheets of the H100 */
  L2_BYTES_PER_CLK = 64,     /* per multiprocessor; adds are slower than loads */
  STEP_INSTRUCTIONS = 15,    /* per element of S: the pointwise work, addresses, waits */
  DROPOUT_INSTRUCTIONS = 12, /* the same: 399 of a consumer's step of 32 elements a thread */
  A_WAVEFRONTS = 16,         /* of 64 rows and a depth of 16, from shared memory */
  FRAGMENT_WAVEFRONTS = 4,   /* of ldmatrix, stmatrix and stores of 16 bytes by a warp */
  STEP_LATENCY = 150,        /* of each consumer: barriers, products' start and end */
  STORE_LATENCY = 900,       /* of a block's end, where dK and dV go through shared memory */
  EARLY_LATENCY = 700,       /* added: a block says that its dQ is done */
  RED_ROWS = 128
};

static const double SHARPNESS = 6;   /* how well the parts of a step overlap */
static const double POINTWISE = 1.5; /* factor of a consumer's pointwise work: its own waits */
static const double PACING = 0.98;   /* of consumers that are kept out of step */
static const double DROPOUT_TURNS = 0.975; /* of turns besides, where pointwise work is long */
static const double LOADS_BESIDE_DQ = 1.1; /* a load is asked for after the dQ of a step */
static const double PERSISTENT = 1.03;    /* of the loop over key tiles: 448 instructions for 425 */
static const double STREAMED = 0.97;      /* of one over all steps: lists are read beside it */
static const double RED = 0.97;           /* of steps of 128 queries that add dQ from registers */
static const double EARLY_SHARE = 0.6;    /* of the last kernel, done where no key tile is left, if
                                             all end together; short tiles at the end leave none */
static const double MORE_LAUNCHES_US = 4; /* of three kernels, one after the other */
static const double OTHERS =
    2; /* times of the first and the last kernel over those by DRAM's rate */
static const double SPILLS = 1.5;           /* registers do not suffice: products one by one */
static const double NEEDLESS_STAGE = 1.003; /* each */
static const double DIVIDED = 1.02;         /* of a kernel that can divide walks */

/* Cycles of one step of one block, by resource. */
struct step {
  double mma, exp, issue, smem, l2, all;
};

/* Wavefronts of a step's products: S and dP, of which A may be in registers; dV and dK; dQ. */
static double product_wavefronts(const struct ft_wgmma_backward_knobs *k,
                                 const struct ft_wgmma_backward_budget *own) {
  const double m = k->block_m, groups = own->consumers, d = own->d_pad, dv = own->dv_pad;
  const double a = k->kv_in_regs ? 0 : A_WAVEFRONTS;
  const double scores = groups * (d + dv) / 16 * (m / 4 + a);
  const double sums = groups * m / 16 * (d + dv) / 4;
  const double pieces = ceil(d / 64);
  const double dq = m / 64 * k->block_n / 16 * (d / 4 + pieces * A_WAVEFRONTS);
  return scores + sums + dq;
}

/* Of what threads load and store: LSE and delta, dS, dQ. */
static double thread_wavefronts(const struct ft_wgmma_backward_knobs *k,
                                const struct ft_wgmma_backward_budget *own) {
  const double warps = 4 * own->consumers, m = k->block_m;
  const double statistics = warps * 2 * (m / 8) * 2;
  const double ds = warps * m / 16 * FRAGMENT_WAVEFRONTS;
  const double dq = m / 16 * own->d_pad / 8 * FRAGMENT_WAVEFRONTS;
  return statistics + ds + dq;
}

static struct step step_of(const struct ft_request *request,
                           const struct ft_wgmma_backward_knobs *k, const struct ft_budget *budget,
                           const struct ft_score_cost *score, int spill_bytes) {
  const struct ft_wgmma_backward_budget *const own = ft_wgmma_backward_budget(budget);
  const double m = k->block_m, n = k->block_n, d = own->d_pad, dv = own->dv_pad;
  struct step step = {0};
  step.mma = 2 * m * n * (3 * d + 2 * dv) / MMA_FLOPS_PER_CLK;
  step.exp = m * n * (1 + score->special) / FT_EXP_PER_CLK;
  const double spilled = 2.0 * spill_bytes * budget->threads / FT_SMEM_BYTES_PER_CLK;
  step.smem = product_wavefronts(k, own) + thread_wavefronts(k, own) + spilled;
  step.l2 = (m * (request->head_dim + request->head_dim_v) * 2 + m * d * 4) / L2_BYTES_PER_CLK;
  const double per_element =
      STEP_INSTRUCTIONS + score->instructions + (request->dropout ? DROPOUT_INSTRUCTIONS : 0);
  step.issue = m * n / 32 * per_element / FT_ISSUE_PER_CLK + ft_read_cycles(m * n, score->reads);
  const double chain = (step.mma * 0.8 + POINTWISE * (step.exp + step.issue)) / own->consumers;
  const double sum = pow(step.mma, SHARPNESS) + pow(step.smem, SHARPNESS) + pow(chain, SHARPNESS);
  step.all = fmax(pow(sum, 1 / SHARPNESS), step.l2) + STEP_LATENCY * own->consumers;
  if (k->pacing) step.all *= PACING;
  if (k->pacing == 2 && request->dropout) step.all *= DROPOUT_TURNS;
  if (k->loads_beside_dq) step.all *= LOADS_BESIDE_DQ;
  if (k->dq_adds == FT_DQ_FROM_REGISTERS && k->block_m == RED_ROWS) step.all *= RED;
  const bool streams_lists = k->persistent == FT_STREAMED && request->mask_rows > 0;
  if (k->persistent) step.all *= streams_lists ? STREAMED : PERSISTENT;
  step.all *= pow(NEEDLESS_STAGE, k->q_stages + k->ds_stages - 4);
  if (budget->regs_estimate > budget->regs_limit) step.all *= SPILLS;
  return step;
}

/* The first and the last kernel: what they read and write. */
static double other_kernels_us(const struct ft_request *request, const struct ft_arch *arch,
                               const struct ft_wgmma_backward_knobs *k, struct ft_walk walk) {
  const double queries = (double)request->batch * request->heads_q * (double)request->seqlen_q;
  const double d = request->head_dim, dv = request->head_dim_v;
  const double alike = fmax(0, 2 * walk.mean / fmax(1, walk.longest) - 1);
  const double last = (d * 4 + d * 2) * (k->early_dq ? 1 - EARLY_SHARE * alike : 1);
  return OTHERS * queries * (dv * 4 + d * 4 + last) / ft_dram_bytes_per_us(arch);
}

/* Of the main kernel. */
static double cycles_of_blocks(const struct ft_request *request, const struct ft_arch *arch,
                               const struct ft_wgmma_backward_knobs *k, struct ft_tiling tiling,
                               double step, double waves) {
  const struct ft_blocks blocks = {tiling, .cluster = 1, .part_steps = k->part_steps};
  double cycles = ft_steps_in_order(request, arch, &blocks) * step;
  if (k->direct_store) cycles -= ceil(waves) * STORE_LATENCY;
  if (k->early_dq) cycles += ceil(waves) * EARLY_LATENCY;
  return k->part_steps > 0 ? cycles * DIVIDED : cycles;
}

static struct ft_prediction predict(const struct ft_modelled *of) {
  const struct ft_request *const request = of->request;
  const struct ft_arch *const arch = of->arch;
  const struct ft_wgmma_backward_knobs *const k = ft_wgmma_backward_knobs(of->config);
  const struct ft_budget budget = ft_budget_of(request, of->config, arch);
  const struct ft_score_cost score = ft_cost_with_visible(request, &of->score, of->score.slope);
  const struct step step = step_of(request, k, &budget, &score, of->spill_bytes);
  const struct ft_tiling tiling = {.block_m = k->block_m, .block_n = k->block_n, .packed = 1};
  const struct ft_walk walk = ft_walk_of_keys(request, tiling);
  const int registers = of->registers > 0 ? of->registers : ft_budget_registers(&budget);
  struct ft_prediction prediction = {.occupancy = ft_budget_occupancy(&budget, arch, registers)};
  const double sms = fmax(1, arch->sm_count), cycles_per_us = ft_cycles_per_us(arch);
  const double blocks =
      (double)request->batch * request->heads_kv * ceil((double)request->seqlen_k / k->block_n);
  const double scale = blocks * walk.mean / sms / cycles_per_us; /* cycles of a step -> us of all */
  prediction.waves = blocks / sms;
  prediction.mma_us = scale * step.mma;
  prediction.exp_us = scale * step.exp;
  prediction.issue_us = scale * step.issue;
  prediction.smem_us = scale * step.smem;
  prediction.l2_us = scale * step.l2;
  const double others = other_kernels_us(request, arch, k, walk);
  prediction.dram_us = 2 * ft_compulsory_us(request, arch) + others;

  const double cycles = cycles_of_blocks(request, arch, k, tiling, step.all, prediction.waves);
  prediction.us = MORE_LAUNCHES_US + fmax(cycles / cycles_per_us + others, prediction.dram_us);
  prediction.walk = (struct ft_predicted_walk){
      .steps = walk.mean, .longest = walk.longest, .parts = 1, .rounds = prediction.waves};
  return prediction;
}

const struct ft_family_model ft_wgmma_backward_model = {.family = &ft_wgmma_backward_family,
                                                        .predict = predict};
