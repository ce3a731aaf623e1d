/* model_wgmma_forward.c: what a wgmma_forward candidate should take.
 * in -> out: request + arch + config -> microseconds by resource.
 *
 * One block stays on each multiprocessor and walks over tiles. In a step the consumers make block_m
 * x block_n scores, and multiply P by V. The matrix unit does one part while the softmax of another
 * runs beside it, if there are other scores to work on meanwhile: those of the next step or of
 * other warpgroups. K and V come in the background. Q and O of all blocks move at about the same
 * time, so blocks wait for them. The constants were set by hand beside 80 timings on an H200 (d 64,
 * 128 and 256, n 512 to 16384, full and causal). Predicted ratios are within 3 % of the measured
 * ones, except that choices which never won are put further back. Under load the clock falls by up
 * to a sixth, for all candidates of a request alike; that is left out, because only their order
 * matters. */
#include <math.h>

#include "generator/families/wgmma_forward.h"
#include "generator/visibility.h"
#include "generator/model/model_families.h"
#include "generator/model/rates.h"
#include "generator/model/walk.h"

enum { L2_BYTES_PER_CLK = 96 };
enum { KEY_COLUMNS = 16 }; /* of the depth of Q K^T, with keys_in_product */

/* Instructions of the softmax, per element of S unless said. */
static const double SOFTMAX_INSTRUCTIONS = 4;     /* scale, maximum, ex2, sum, conversion */
static const double FLOAT_MAX_INSTRUCTIONS = 0.3; /* more: maxima not compared as integers */
static const double POLYNOMIAL_INSTRUCTIONS = 16; /* of a power of 2, and for its registers */
static const double DROP_INSTRUCTIONS = 2.5;      /* of dropout */
static const double DRAW_INSTRUCTIONS = 80;       /* of a draw, for half as many elements as keys */
static const double STEP_INSTRUCTIONS = 50;       /* of a warp's step */
static const double EXPONENT_INSTRUCTIONS =
    1.5;                                  /* of a score function, whatever it is: its levels */
static const double P_INSTRUCTIONS = 0.2; /* of P's way to shared memory */
static const double LATE_SHARE =
    0.05; /* share of the steps in which O is rescaled with lazy rescaling */

/* A step, in cycles. */
static const double MMA_SHARE = 0.945; /* of its rate that wgmma reaches beside anything else */
static const double LONE_SOFTMAX =
    1.5; /* factor of the softmax's time when no other instructions fill its gaps */
static const double STEP_LATENCY =
    100; /* of a warpgroup: barriers, start and end of its products */
static const double P_LATENCY =
    60; /* added: P is stored and must be visible to the whole warpgroup. A guess */
static const double SHARPNESS = 3.2; /* how well the parts of a step hide each other; with 1 it
                                        would take their sum, with infinity the largest */

/* A tile, beside its steps. */
static const double TILE_LATENCY = 250;   /* where the tile is, its row statistics */
static const double EXPOSED = 0.93;       /* share of the time for Q and O that nothing hides */
static const double LONE_STEP = 0.15;     /* of a step, where neighbouring tiles do not overlap */
static const double Q_LATENCY = 600;      /* from asking for Q to its first bytes */
static const double KV_LATENCY = 2100;    /* of K and V, for the stages to cover */
static const double TMA_STORE = 220;      /* of a consumer's O through shared memory */
static const double DIRECT_STORE = 3;     /* of a column of O from registers */
static const double MULTICAST_TILE = 800; /* the two blocks wait for each other */
static const double BEGIN = 4500;         /* of a block: barriers, tensor maps */
static const double SKIPPED_STEP = 0.25;  /* of a step, to a warpgroup that skips it */
static const double RAGGED_TILES =
    1.6; /* tiles that some block takes above the mean, longest first */
static const double EVENED_TILES = 0.3; /* the same, after balanced pairs */

/* Factors of choices, measured, beyond what the parts above say. They also keep near-equal configs
 * apart, so that the order begins with several tiles and not with all variants of one. */
static const double OTHER_TURNS =
    1.006; /* not in turns where all queries see the same; in turns elsewhere */
static const double FLOAT_MAX = 1.006;
static const double NEVER_WON = 1.06;          /* polynomials, O rescaled in every step */
static const double WALK_UP = 1.006;           /* as good */
static const double P_IN_SMEM = 1.01;          /* for the larger tile that it allows */
static const double TURNS_BY_SOFTMAX = 1.01;   /* even at d = 64, behind at 128 */
static const double NEEDLESS_STAGE = 1.01;     /* each */
static const double MULTICAST = 1.01;          /* of blocks with 2 or 4 consumers */
static const double MULTICAST_OF_THREE = 1.06; /* with 3 */
static const double MULTICAST_WIDE = 0.995;    /* with 2 and d + d_v > 256 */
static const double SERIALISED = 1.5; /* registers do not suffice: spills, products one by one */

/* Cycles of one step of a block, by resource and in all. */
struct step {
  double mma, exp, issue, smem, l2, all;
  double reads;  /* for which a score waits */
  double loaded; /* bytes of K and V */
};

static double element_instructions(const struct ft_request *request,
                                   const struct ft_wgmma_forward_knobs *k,
                                   const struct ft_score_cost *score) {
  double count =
      SOFTMAX_INSTRUCTIONS + score->instructions + k->exp2_poly / 8.0 * POLYNOMIAL_INSTRUCTIONS;
  if (!k->integer_max) count += FLOAT_MAX_INSTRUCTIONS;
  if (k->p_in_smem) count += P_INSTRUCTIONS;
  if (request->score != 0 && !k->keys_in_product) count += EXPONENT_INSTRUCTIONS;
  if (request->dropout) {
    const int n = k->block_n, keys = n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : 16;
    const double draws =
        k->pack_gqa ? 2 : 1; /* of a tile of 16 rows, whose halves are of two heads */
    count += DROP_INSTRUCTIONS + draws * DRAW_INSTRUCTIONS * 2.0 / keys;
  }
  return count;
}

/* The warpgroups share the units; in each, Q K^T, softmax and barriers follow one another. */
static double step_cycles(const struct step *step, double consumers, double latency) {
  const double mma = step->mma / MMA_SHARE, softmax = step->exp + step->issue + step->reads;
  const double chain = (step->mma / 2 + LONE_SOFTMAX * softmax) / consumers + latency;
  const double sum = pow(mma, SHARPNESS) + pow(softmax, SHARPNESS) + pow(chain, SHARPNESS);
  return fmax(pow(sum, 1 / SHARPNESS), fmax(step->smem, step->l2));
}

static struct step step_of(const struct ft_request *request, const struct ft_wgmma_forward_knobs *k,
                           const struct ft_budget *budget, const struct ft_score_cost *score,
                           int spill_bytes) {
  const struct ft_wgmma_forward_budget *const own = ft_wgmma_forward_budget(budget);
  const double m = k->block_m, n = k->block_n;
  const double d = own->d_pad, dv = own->dv_pad, consumers = own->consumers;
  const double of_keys = k->keys_in_product ? KEY_COLUMNS : 0;
  struct step step = {0};
  const double bytes =
      ft_dtype_bytes(request->dtype); /* of an element; with one the rate is twice */
  step.mma = m * n * (d + of_keys + dv) * bytes / FT_WGMMA_FLOPS_PER_CLK;
  step.exp = m * n * (1 - k->exp2_poly / 8.0 + score->special) / FT_EXP_PER_CLK;
  const double rescale = m * dv * (k->lazy_rescale ? LATE_SHARE : 1);
  const double elements = m * n * element_instructions(request, k, score) + rescale;
  step.issue = (elements / 32 + 4 * consumers * STEP_INSTRUCTIONS) / FT_ISSUE_PER_CLK;

  step.reads = ft_read_cycles(m * n, score->reads);

  /* Each warpgroup reads K and V for itself, its rows of Q, and its rows of P, which it has written
   * before. TMA writes whole panels. */
  const double p = k->p_in_smem ? m * n * 2 : 0;
  const double transposed = own->v_rows_bytes > 0 ? n * dv : 0; /* V, once more */
  const double read = consumers * (64 * d + n * (d + dv)) * bytes + p + transposed;
  const double written = n * 128 * (own->d_panels + own->dv_panels) + p + transposed;
  const double spilled = 2.0 * spill_bytes * budget->threads;
  step.smem = (read + written + spilled) / FT_SMEM_BYTES_PER_CLK;
  const double loaded =
      n * (request->head_dim + request->head_dim_v) * bytes / (k->multicast > 0 ? 2 : 1);
  step.l2 = loaded / L2_BYTES_PER_CLK;
  step.loaded = loaded;
  step.all = step_cycles(&step, consumers, STEP_LATENCY + k->p_in_smem * P_LATENCY);
  return step;
}

/* The work tiles of a request. */
struct tiles {
  struct ft_walk walk;
  double steps;       /* of the mean tile, without those that its warpgroups skip */
  double batch_heads; /* packed heads count as one */
  double of_a_head;   /* tiles of each batch_head, or parts of them */
  double whole;       /* tiles of all heads, before any is divided */
  double longest;  /* under a mask with long rows: tiles of all heads, or parts, that are so long */
  double merge_us; /* that parts cost besides */
};

/* How long a tile waits for its Q, which takes `transfer`, after a tile of so many steps. The place
 * of that Q is free when the O staged there has been stored, or, with direct_store, after the last
 * Q K^T of the tile before. */
static double q_wait(const struct ft_wgmma_forward_knobs *k, double step, double steps,
                     double transfer) {
  double ahead = k->direct_store ? 0.7 : 0;
  if (k->q_stages > 1) ahead = k->direct_store ? steps : fmax(0, steps - 3);
  return fmax(0, Q_LATENCY + transfer - ahead * step);
}

static double tile_cycles(const struct ft_request *request, const struct ft_arch *arch,
                          const struct ft_wgmma_forward_knobs *k, const struct ft_budget *budget,
                          double step, const struct tiles *tiles) {
  const struct ft_wgmma_forward_budget *const own = ft_wgmma_forward_budget(budget);
  const double dram_bytes_per_clk =
      ft_dram_bytes_per_us(arch) / ft_cycles_per_us(arch) / fmax(1, arch->sm_count);
  const double q =
      k->block_m * request->head_dim * ft_dtype_bytes(request->dtype) / dram_bytes_per_clk;
  const double o = k->block_m * request->head_dim_v * 2 / dram_bytes_per_clk;
  const double store = k->direct_store ? DIRECT_STORE * own->dv_pad : TMA_STORE;
  double cycles = TILE_LATENCY + EXPOSED * (q + o) + own->consumers * store;
  if (!k->overlap_tiles) cycles += LONE_STEP * step;
  if (k->multicast) cycles += MULTICAST_TILE;
  if (k->split_keys > 1) cycles += BEGIN; /* each block has one part */
  cycles += fmax(0, KV_LATENCY - (k->stages - 1) * step);
  /* The tile before may be shorter or longer. */
  const double steps = tiles->steps;
  const double spread = fmin(steps, tiles->walk.longest - tiles->walk.mean) / 2;
  const double after_short = q_wait(k, step, steps - spread, q);
  const double after_long = q_wait(k, step, steps + spread, q);
  return cycles + (after_short + after_long) / 2;
}

/* Steps of the mean tile. A step that a warpgroup skips, because its rows see none of the keys,
 * counts as SKIPPED_STEP. */
static double steps_taken(const struct ft_request *request, struct ft_tiling tiling, double steps) {
  if (!ft_visibility_varies(request) || request->mask_rows > 0) return steps;
  tiling.block_m = 64; /* rows of a warpgroup */
  const double own = fmin(steps, ft_walk_of_queries(request, tiling).mean);
  return own + SKIPPED_STEP * (steps - own);
}

/* The share of a walk's steps whose keys are near enough to the queries, as for ALiBi with 8 heads,
 * whose slopes are 1/2 to 1/256, and q . k of normal numbers. */
static double near_share(const struct ft_request *request) {
  enum { HEADS = 8, REACH = 130 }; /* keys, with a slope of 1 */
  double sum = 0;
  for (int head = 1; head <= HEADS; ++head) {
    const double reach = fmin(1, ldexp(REACH, head) / fmax(1, (double)request->seqlen_k));
    sum += reach * (2 - reach); /* of both sides of a query */
  }
  return sum / HEADS;
}

/* Of the kernel that finds the largest norms of Q and K. */
static double norms_us(const struct ft_request *request, const struct ft_arch *arch) {
  static const double LAUNCH = 3, OF_DRAM = 1.3; /* us; time over that of the bytes alone */
  const double rows = (double)request->heads_q * (double)request->seqlen_q +
                      (double)request->heads_kv * (double)request->seqlen_k;
  const double columns = request->head_dim * ft_dtype_bytes(request->dtype);
  const double bytes = rows * (double)request->batch * columns;
  return LAUNCH + OF_DRAM * bytes / ft_dram_bytes_per_us(arch);
}

static struct tiles tiles_of(const struct ft_request *request, const struct ft_arch *arch,
                             const struct ft_config *config, const struct ft_budget *budget) {
  const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(config);
  const struct ft_pack pack = ft_pack_of(config, request);
  const int packed = 1 << pack.bits;
  const struct ft_tiling tiling = {k->block_m, k->block_n, packed};
  struct ft_walk walk = ft_walk_of_queries(request, tiling);
  if (k->skip_far) {
    walk.mean *= near_share(request);
    walk.longest *= near_share(request);
  }
  struct tiles tiles = {
      .walk = walk,
      .steps = steps_taken(request, tiling, walk.mean),
      .batch_heads = (double)request->batch * request->heads_q / pack.heads,
      .of_a_head = ceil((double)request->seqlen_q * packed / k->block_m),
  };
  tiles.whole = tiles.of_a_head * tiles.batch_heads;
  if (request->mask_longest > 1)
    tiles.longest = tiles.batch_heads * fmax(1, (double)request->mask_rows * packed / k->block_m);
  if (!k->split_keys) return tiles;
  struct ft_walks walks = {0};
  ft_wgmma_forward_walks(&walks, request, config, budget);
  const struct ft_divided_walk divided = ft_divide_walk(request, arch, walk, pack, &walks);
  tiles.walk = divided.walk;
  tiles.steps /= divided.parts;
  tiles.of_a_head *= divided.parts;
  tiles.merge_us = divided.merge_us;
  if (request->mask_longest > 1) tiles.longest = divided.long_parts;
  return tiles;
}

/* Tiles of the block that has most, for which the others wait. Tiles of equal length are dealt out
 * one by one. Others are dealt out in balanced pairs, a long with a short one, and in the end one
 * by one; or longest first. */
static double most_tiles(const struct ft_request *request, const struct ft_arch *arch,
                         const struct ft_wgmma_forward_knobs *k, const struct tiles *tiles) {
  const double sms = fmax(1, arch->sm_count);
  const double all = tiles->of_a_head * tiles->batch_heads;
  if (k->split_keys > 1) return ceil(tiles->whole / ft_resident_clusters(arch, k->split_keys, 1));
  if (!ft_request_tiles_differ(request)) {
    const double blocks = k->multicast > 0 ? 2 : 1; /* of a cluster; each takes a tile */
    const double of_a_cluster = ceil(tiles->of_a_head / blocks) * tiles->batch_heads;
    return ceil(of_a_cluster / fmax(1, floor(sms / blocks)));
  }
  if (all <= sms) return 1;
  const bool alike = tiles->merge_us > 0 && request->mask_rows == 0; /* parts of all walks */
  if (alike) return ceil(all / sms);
  const double even = all / sms + (k->lpt || k->split_keys ? RAGGED_TILES : EVENED_TILES);
  if (request->mask_rows > 0 || k->split_keys) return even;
  /* Some block takes the mean number of tiles, rounded up, and no tile is below the shortest. */
  return fmax(even, ceil(all / sms) * tiles->walk.shortest / tiles->walk.mean);
}

/* Steps that the busiest block takes above the mean. Every block has as many tiles as any other,
 * and of the long ones it may have one more than the mean. */
static double uneven_steps(const struct ft_arch *arch, const struct tiles *tiles) {
  const double of_a_block = tiles->longest / fmax(1, arch->sm_count);
  return (ceil(of_a_block) - of_a_block) * (tiles->walk.longest - tiles->walk.mean);
}

/* The least that a step takes, by how many are on their way. K's place is free before V's. */
static double load_cycles(const struct ft_request *request, const struct ft_arch *arch,
                          const struct ft_wgmma_forward_knobs *k, const struct step *step,
                          const struct tiles *tiles) {
  const double all = tiles->of_a_head * tiles->batch_heads;
  const struct ft_loads loads = {.bytes = step->loaded,
                                 .steps = all * tiles->walk.mean,
                                 .busy = fmin(fmax(1, arch->sm_count), all),
                                 .beside = L2_BYTES_PER_CLK};
  const struct ft_load load = ft_load_of(request, arch, &loads);
  return fmax(load.received, load.waited / (k->stages - 0.5));
}

static double multicast_factor(const struct ft_wgmma_forward_knobs *k,
                               const struct ft_budget *budget) {
  const struct ft_wgmma_forward_budget *const own = ft_wgmma_forward_budget(budget);
  if (!k->multicast) return 1;
  if (own->consumers == 3) return MULTICAST_OF_THREE;
  return own->d_pad + own->dv_pad > 256 ? MULTICAST_WIDE : MULTICAST;
}

static double factor_of_choices(const struct ft_request *request,
                                const struct ft_wgmma_forward_knobs *k,
                                const struct ft_budget *budget, double step) {
  const struct ft_wgmma_forward_budget *const own = ft_wgmma_forward_budget(budget);
  const bool turns_help = !ft_visibility_varies(request) && own->consumers > 1;
  const double stages = 1 + ceil(KV_LATENCY / step);
  double factor = multicast_factor(k, budget);
  if ((k->pingpong == 1) != turns_help) factor *= OTHER_TURNS;
  if (!k->integer_max) factor *= FLOAT_MAX;
  if (!k->lazy_rescale) factor *= NEVER_WON;
  if (k->exp2_poly) factor *= NEVER_WON;
  if (k->ascending_keys) factor *= WALK_UP;
  if (k->p_in_smem) factor *= P_IN_SMEM;
  if (k->pingpong == 2) factor *= TURNS_BY_SOFTMAX;
  factor *= pow(NEEDLESS_STAGE, fmax(0, k->stages - stages));
  /* The compiler finds room for four registers more than the estimate, but not for eight. */
  if (budget->regs_estimate > budget->regs_limit + 4) factor *= SERIALISED;
  return factor;
}

static struct ft_prediction predict(const struct ft_modelled *of) {
  const struct ft_request *const request = of->request;
  const struct ft_arch *const arch = of->arch;
  const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(of->config);
  const struct ft_budget budget = ft_budget_of(request, of->config, arch);
  const struct ft_score_cost by_products = {0}, exponent = of->score.exponent;
  const struct ft_score_cost score =
      ft_cost_with_visible(request, &of->score, k->keys_in_product ? by_products : exponent);
  struct step step = step_of(request, k, &budget, &score, of->spill_bytes);
  const struct tiles tiles = tiles_of(request, arch, of->config, &budget);
  const double all = tiles.of_a_head * tiles.batch_heads, sms = fmax(1, arch->sm_count);
  step.all = fmax(step.all, load_cycles(request, arch, k, &step, &tiles));
  const double cycles_per_us = ft_cycles_per_us(arch);
  const double scale = all * tiles.steps / sms / cycles_per_us; /* cycles of a step -> us of all */
  struct ft_prediction prediction = {
      .mma_us = scale * step.mma,
      .exp_us = scale * step.exp,
      .issue_us = scale * step.issue,
      .smem_us = scale * step.smem,
      .l2_us = scale * step.l2,
      .dram_us = ft_compulsory_us(request, arch),
      .waves = all / sms,
      .occupancy = ft_budget_occupancy(&budget, arch, ft_budget_registers(&budget))};

  const double tile =
      tiles.steps * step.all + tile_cycles(request, arch, k, &budget, step.all, &tiles);
  const double longest = tile + (tiles.walk.longest - tiles.walk.mean) * step.all;
  const double busiest =
      most_tiles(request, arch, k, &tiles) * tile + uneven_steps(arch, &tiles) * step.all;
  const double cycles = ft_cycles_of_uneven(request, busiest, longest);
  const double us = (cycles + (k->split_keys > 1 ? 0 : BEGIN)) / cycles_per_us;
  prediction.us = fmax(us * factor_of_choices(request, k, &budget, step.all), prediction.dram_us) +
                  tiles.merge_us + (k->skip_far ? norms_us(request, arch) : 0);
  prediction.walk = (struct ft_predicted_walk){
      .steps = tiles.walk.mean,
      .longest = tiles.walk.longest,
      .parts = all / tiles.whole,
      .merge_us = tiles.merge_us,
      .rounds = k->split_keys > 1 ? tiles.whole / ft_resident_clusters(arch, k->split_keys, 1)
                                  : prediction.waves,
      .ahead_bytes = (k->stages - 0.5) * step.loaded};
  return prediction;
}

const struct ft_family_model ft_wgmma_forward_model = {
    .family = &ft_wgmma_forward_family, .persistent = true, .predict = predict};
