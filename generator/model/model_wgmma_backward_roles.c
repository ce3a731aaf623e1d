/* model_wgmma_backward_roles.c: what the three kernels of a wgmma_backward_roles candidate should
 * take. in -> out: request + arch + config + registers -> microseconds by resource.
 *
 * A step of the main kernel is block_m queries of one head with the keys of a cluster, half of them
 * in each of its two blocks: five products. Tensor cores and shared memory, from which products and
 * pointwise work read, are nearly equally busy and hide each other in part. Shared memory is
 * counted in wavefronts, 128 bytes a clock: a product of depth 16 takes N / 4 for B and, where A is
 * in shared memory, 16 for each 64 rows of A. The constants were set by hand beside a prototype's
 * step on an H200 (3545 cycles with d = 256). */
#include <math.h>

#include "generator/families/wgmma_backward_roles.h"
#include "generator/model/model_families.h"
#include "generator/model/rates.h"
#include "generator/model/tiles_in_order.h"

enum {
  BLOCKS = 2,               /* of a cluster */
  MMA_FLOPS_PER_CLK = 4096, /* dense, per multiprocessor: data sheets of the H100 */
  L2_BYTES_PER_CLK = 64,    /* per multiprocessor; adds are slower than loads */
  STEP_INSTRUCTIONS = 15,   /* per element of S: the pointwise work, addresses, waits */
  A_WAVEFRONTS = 16,        /* of 64 rows and a depth of 16, from shared memory */
  FRAGMENT_WAVEFRONTS = 4,  /* of ldmatrix, stmatrix and stores of 16 bytes by a warp */
  STEP_LATENCY = 450        /* barriers, products' start and end, the other block */
};

static const double MORE_LAUNCHES_US = 4; /* of three kernels, one after the other */
static const double OTHERS =
    2; /* times of the first and the last kernel over those by DRAM's rate */
static const double SHARPNESS = 4;         /* how well tensor cores and shared memory overlap */
static const double LONE_DO_STAGE = 1.03;  /* the next dO comes when this one's products are done */
static const double LONE_Q_STAGE = 1.15;   /* likewise */
static const double LONE_PIECE = 1.02;     /* a piece of dQ waits for the one before */
static const double NEEDLESS_STAGE = 1.01; /* each */

/* Cycles of one step of one block, by resource. */
struct step {
  double mma, exp, issue, smem, l2, all;
};

/* Columns of dQ in the block that makes more of them. */
static double most_columns(const struct ft_wgmma_backward_roles_budget *own) {
  return fmax(own->first_columns, own->d_pad - own->first_columns);
}

/* Wavefronts of a step's products in that block: S and dP, dV and dK, dQ over the keys of both
 * blocks. */
static double product_wavefronts(double m, double n,
                                 const struct ft_wgmma_backward_roles_budget *own) {
  const double d = own->d_pad, dv = own->dv_pad;
  const double scores = (d + dv) / 16 * (m / 4 + (own->kv_in_regs ? 0 : A_WAVEFRONTS));
  const double sums = m / 16 * (d + dv) / 4;
  const double dq = BLOCKS * n / 16 * (most_columns(own) / 4 + A_WAVEFRONTS);
  return scores + sums + dq;
}

/* Of what threads load and store: LSE and delta, P and dS, dQ. */
static double thread_wavefronts(double m, const struct ft_wgmma_backward_roles_budget *own) {
  enum { WARPS = 4, P_AND_DS = 3 /* P stored and loaded, dS stored */ };
  const double statistics = WARPS * 2 * (m / 8) * 2;
  const double ds = WARPS * P_AND_DS * m / 16 * FRAGMENT_WAVEFRONTS;
  const double dq = m / 16 * most_columns(own) / 8 * FRAGMENT_WAVEFRONTS;
  return statistics + ds + dq;
}

static double by_stages(const struct ft_wgmma_backward_roles_knobs *k) {
  double factor = pow(NEEDLESS_STAGE, k->q_stages + k->ds_stages - 2);
  if (k->q_stages == 1) factor *= LONE_Q_STAGE;
  if (k->do_stages == 1) factor *= LONE_DO_STAGE;
  if (k->dq_stages == 1) factor *= LONE_PIECE;
  return factor;
}

static struct step step_of(const struct ft_wgmma_backward_roles_knobs *k,
                           const struct ft_budget *budget, const struct ft_score_cost *score,
                           int spill_bytes) {
  const struct ft_wgmma_backward_roles_budget *const own = ft_wgmma_backward_roles_budget(budget);
  const double m = k->block_m, n = (double)k->block_n / BLOCKS, d = own->d_pad, dv = own->dv_pad;
  struct step step = {0};
  step.mma = 2 * m * n * (2 * d + 2 * dv + BLOCKS * most_columns(own)) / MMA_FLOPS_PER_CLK;
  step.exp = m * n * (1 + score->special) / FT_EXP_PER_CLK;
  const double spilled = 2.0 * spill_bytes * budget->threads / FT_SMEM_BYTES_PER_CLK;
  step.smem = product_wavefronts(m, n, own) + thread_wavefronts(m, own) + spilled;
  step.l2 = (m * (d + dv) * 2 + m * most_columns(own) * 4) / L2_BYTES_PER_CLK;
  step.issue = m * n / 32 * (STEP_INSTRUCTIONS + score->instructions) / FT_ISSUE_PER_CLK +
               ft_read_cycles(m * n, score->reads);
  const double both = pow(pow(step.mma, SHARPNESS) + pow(step.smem, SHARPNESS), 1 / SHARPNESS);
  /* Two of the four warpgroups do the pointwise work, one after the other. */
  const double pointwise = 2 * (step.exp + step.issue);
  step.all = (fmax(fmax(both, pointwise), step.l2) + STEP_LATENCY) * by_stages(k);
  return step;
}

/* The first and the last kernel: what they read and write. */
static double other_kernels_us(const struct ft_request *request, const struct ft_arch *arch) {
  const double queries = (double)request->batch * request->heads_q * (double)request->seqlen_q;
  const double d = request->head_dim, dv = request->head_dim_v;
  return OTHERS * queries * (dv * 4 + d * 8 + d * 2) / ft_dram_bytes_per_us(arch);
}

static struct ft_prediction predict(const struct ft_modelled *of) {
  const struct ft_request *const request = of->request;
  const struct ft_arch *const arch = of->arch;
  const struct ft_wgmma_backward_roles_knobs *const k = ft_wgmma_backward_roles_knobs(of->config);
  const struct ft_budget budget = ft_budget_of(request, of->config, arch);
  const struct ft_score_cost score = ft_cost_with_visible(of->request, &of->score, of->score.slope);
  const struct step step = step_of(k, &budget, &score, of->spill_bytes);
  const struct ft_tiling tiling = {.block_m = k->block_m, .block_n = k->block_n, .packed = 1};
  const struct ft_walk walk = ft_walk_of_keys(request, tiling);
  const int registers = of->registers > 0 ? of->registers : ft_budget_registers(&budget);
  struct ft_prediction prediction = {.occupancy = ft_budget_occupancy(&budget, arch, registers)};
  const double sms = fmax(1, arch->sm_count), cycles_per_us = ft_cycles_per_us(arch);
  const double blocks = BLOCKS * (double)request->batch * request->heads_kv *
                        ceil((double)request->seqlen_k / k->block_n);
  const double scale = blocks * walk.mean / sms / cycles_per_us; /* cycles of a step -> us of all */
  prediction.waves = blocks / sms;
  prediction.mma_us = scale * step.mma;
  prediction.exp_us = scale * step.exp;
  prediction.issue_us = scale * step.issue;
  prediction.smem_us = scale * step.smem;
  prediction.l2_us = scale * step.l2;
  const double others = other_kernels_us(request, arch);
  prediction.dram_us = 2 * ft_compulsory_us(request, arch) + others;

  const struct ft_blocks clusters = {tiling, .cluster = BLOCKS};
  const double cycles = ft_steps_in_order(request, arch, &clusters) * step.all;
  prediction.us = MORE_LAUNCHES_US + fmax(cycles / cycles_per_us + others, prediction.dram_us);
  prediction.walk = (struct ft_predicted_walk){
      .steps = walk.mean, .longest = walk.longest, .parts = 1, .rounds = prediction.waves};
  return prediction;
}

const struct ft_family_model ft_wgmma_backward_roles_model = {
    .family = &ft_wgmma_backward_roles_family, .predict = predict};
