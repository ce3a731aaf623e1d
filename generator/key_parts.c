/* key_parts.c: into how many parts the walks of a forward's work tiles are divided.
 * in -> out: work tiles of a launch -> parts, and what they cost.
 *
 * Parts are for GPUs that the work tiles do not fill. They come in rounds of resident blocks. A
 * part costs its beginning and its end besides its steps, and the partial results are written, read
 * and merged in a second kernel. So few numbers of parts are worth a look: those whose blocks just
 * fill one round, two, three or four, and some whose blocks fill a part of one.
 *
 * Where only the device knows the lengths, the mean walk is taken to be half as long as the
 * longest. If blocks take whole walks, the launch lasts at least as long as the longest walk. If
 * blocks take equal shares of all steps (stream.h), no block works longer than another. */
#include "generator/key_parts.h"

#include <math.h>

#include "generator/stream.h"

enum { ROUNDS_MOST = 4, PARTS_MOST = 256 };

/* Microseconds of a part, of merging and of waiting. They were fitted to 414 launches on an H200,
 * each timed with two to six numbers of parts (bench/ledger.md, "How many parts"). */
static const double PART_US = 1.8;  /* first loads, last products, the write of O */
static const double MERGE_US = 1.3; /* the second kernel, which begins when all parts are done */
static const double MERGE_PART_US = 0.03; /* of each part of a row: one is added after the other */
/* A step waits for its K and V. They were asked for `stages` - 1 steps before, and the wait is
 * WAIT_US divided by that number. With one stage nothing was asked for before: then it is divided
 * by ONE_STAGE. */
static const double WAIT_US = 0.14, ONE_STAGE = 0.4;

/* Guesses. */
static const double SHARES_US = 3;  /* blocks find out where their shares begin */
static const double CLUSTER_US = 1; /* blocks wait for each other and read each other's parts */

enum { WARPS_OF_SM = 4 };                  /* keep all tensor cores of a multiprocessor busy */
static const double SM_BYTES_PER_CLK = 32; /* a multiprocessor loads no more, however idle others */
/* Of e4m3, that a block of 8 warps makes operands of, as measured on an H200. */
static const double BLOCK_BYTES_PER_CLK = 18;
static const double PARTIAL_BYTES = 8; /* of a value of a partial O: written and read */
/* Where each multiprocessor has two blocks, DRAM is read that much slower than by one of each. */
static const double CROWD = 0.04;

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t max_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static double positive(double value, double otherwise) {
  return value > 0 ? value : otherwise;
}

static int64_t slots_of(const struct ft_walks *walks, const struct ft_arch *arch) {
  return max_of(1, arch->sm_count) * max_of(1, walks->blocks_per_sm);
}

double ft_piece_cost(int piece) {
  enum { LEAST = 64 };
  return piece > 0 && piece < LEAST ? (double)LEAST / piece : 1;
}

/* A step while so many blocks work at once. */
static double step_us(const struct ft_walks *walks, const struct ft_arch *arch, double busy) {
  const double sms = (double)max_of(1, arch->sm_count);
  const double cycles_per_us = positive(arch->clock_ghz, 1.5) * 1e3;
  const double beside = busy > sms ? busy / sms : 1; /* blocks that share a multiprocessor */
  const double values = (double)walks->head_dim + walks->head_dim_v;
  const double flops = 2.0 * walks->block_m * walks->block_n * values;
  const double bytes = positive(walks->bytes, 2) * walks->block_n * values;
  /* A block with fewer warps takes longer, however idle its multiprocessor is. */
  const double longer = WARPS_OF_SM / positive(walks->warps, WARPS_OF_SM);
  const double products = flops * (beside > longer ? beside : longer) /
                          positive(walks->mma_flops_per_clk, 1024) / cycles_per_us;
  const double share = beside / SM_BYTES_PER_CLK;
  const double least = walks->converts ? 1 / BLOCK_BYTES_PER_CLK : 0;
  const double alone = bytes * (share > least ? share : least) / cycles_per_us;
  const double dram = positive(arch->dram_gbs, 500) * 1e3 / ft_piece_cost(walks->piece);
  /* Tiles that read the same K and V do so at about the same time: once from DRAM. */
  const double together = bytes * busy / (double)max_of(1, walks->alike) / dram *
                          (1 + CROWD * ((beside < 2 ? beside : 2) - 1));
  const double loads = alone > together ? alone : together;
  const double wait = WAIT_US / (walks->stages > 1 ? walks->stages - 1 : ONE_STAGE);
  return (products > loads ? products : loads) + wait;
}

/* What is written, read and merged besides the walks, of so many parts of a row. */
static double merging_us(const struct ft_walks *walks, const struct ft_arch *arch, double parts) {
  const double values = (double)walks->rows * parts * walks->head_dim_v;
  return MERGE_US + MERGE_PART_US * parts +
         values * PARTIAL_BYTES / (positive(arch->dram_gbs, 500) * 1e3);
}

/* Whole walks of mixed lengths, in `rounds` rounds of resident blocks. In the end the longest ones
 * have multiprocessors to themselves. */
static double mixed_us(const struct ft_walks *walks, const struct ft_arch *arch, double rounds) {
  const double tiles = (double)walks->tiles, slots = (double)slots_of(walks, arch);
  const double even = tiles > slots ? tiles / slots : 1, steps = (double)max_of(1, walks->steps);
  const double busy = tiles < slots ? tiles : slots, sms = (double)max_of(1, arch->sm_count);
  const double alone = busy < sms ? busy : sms;
  return steps / 2 * (even * step_us(walks, arch, busy) + step_us(walks, arch, alone)) +
         rounds * PART_US;
}

/* Of the result, `most` is the number of blocks, since each may have a part of the same walk;
 * `steps` is a block's share. Tiles that read the same K and V are in the same share, one behind
 * the other, or in shares that begin at different keys: each reads them from DRAM. */
static struct ft_key_parts shares_of(const struct ft_walks *walks, const struct ft_arch *arch) {
  struct ft_walks apart = *walks;
  apart.alike = 1;
  const int64_t slots = slots_of(walks, arch), longest = max_of(1, walks->steps);
  const int64_t all = max_of(1, walks->tiles * longest / (walks->mixed ? 2 : 1));
  struct ft_key_parts result = {.most = min_of(slots, all),
                                .steps = ft_stream_share(all, longest, slots)};
  const double parts = 2 + (double)walks->tiles / (double)slots; /* of a block */
  result.us = (double)result.steps * step_us(&apart, arch, (double)result.most) + parts * PART_US;
  result.merge_us =
      SHARES_US + merging_us(walks, arch, (double)result.most / (double)max_of(1, walks->tiles));
  result.us += result.merge_us;
  return result;
}

/* Parts of the mean walk. */
static double mean_parts(const struct ft_walks *walks, const struct ft_key_parts *parts) {
  if (walks->mean == 0 || walks->mean >= walks->steps) return (double)parts->most;
  const double mean = (double)walks->mean / (double)parts->steps + 0.5;
  return mean < 1 ? 1 : mean < (double)parts->most ? mean : (double)parts->most;
}

struct ft_key_parts ft_key_parts_divided(const struct ft_walks *walks, const struct ft_arch *arch,
                                         int64_t parts) {
  const int64_t steps = max_of(1, walks->steps);
  struct ft_key_parts result = {.steps = (steps + parts - 1) / parts};
  result.most = (steps + result.steps - 1) / result.steps;
  const double mean = mean_parts(walks, &result), slots = (double)slots_of(walks, arch);
  const double all = (double)walks->tiles * mean, busy = all < slots ? all : slots;
  const double rounds = ceil(all / slots);
  result.us = rounds * ((double)result.steps * step_us(walks, arch, busy) + PART_US);
  if (result.most == 1) {
    if (walks->mixed) result.us = mixed_us(walks, arch, rounds);
    return result;
  }
  result.merge_us = merging_us(walks, arch, mean);
  result.us += result.merge_us;
  return result;
}

bool ft_key_parts_pay(int64_t tiles, int64_t slots) {
  return 2 * tiles <= ROUNDS_MOST * slots;
}

int64_t ft_key_parts_most(const struct ft_walks *walks, const struct ft_arch *arch) {
  const int64_t by_rounds = ROUNDS_MOST * slots_of(walks, arch);
  int64_t by_steps;
  if (__builtin_mul_overflow(walks->tiles, max_of(1, walks->steps), &by_steps)) return by_rounds;
  return min_of(by_rounds, by_steps);
}

/* Each block of a cluster has a part. All blocks of a cluster must be resident in one GPC at once,
 * which leaves some multiprocessors idle: an H200 with 132 holds 30 clusters of 4, 15 of 8 or 7 of
 * 16 blocks. */
int64_t ft_clusters_at_once(const struct ft_walks *walks, const struct ft_arch *arch) {
  const int64_t slots = slots_of(walks, arch);
  return max_of(1, (walks->cluster > 2 ? slots * 10 / 11 : slots) / walks->cluster);
}

static struct ft_key_parts of_cluster(const struct ft_walks *walks, const struct ft_arch *arch) {
  const int64_t parts = walks->cluster, steps = max_of(1, walks->steps);
  const int64_t resident = ft_clusters_at_once(walks, arch);
  const int64_t rounds = (walks->tiles + resident - 1) / resident;
  struct ft_key_parts result = {
      .most = parts, .steps = (steps + parts - 1) / parts, .merge_us = CLUSTER_US};
  const double busy = (double)(min_of(walks->tiles, resident) * min_of(parts, steps));
  result.us = (double)rounds * ((double)result.steps * step_us(walks, arch, busy) + PART_US);
  result.us += CLUSTER_US;
  return result;
}

struct ft_key_parts ft_key_parts_of(const struct ft_walks *walks, const struct ft_arch *arch) {
  if (walks->cluster > 0) return of_cluster(walks, arch);
  if (walks->shared) return shares_of(walks, arch);
  static const int eighths[] = {1, 2, 4, 6, 8, 8 * 2, 8 * 3, 8 * ROUNDS_MOST};
  struct ft_key_parts best = ft_key_parts_divided(walks, arch, 1);
  const int64_t tiles = max_of(1, walks->tiles), slots = slots_of(walks, arch);
  const int64_t most = min_of(min_of(walks->steps, PARTS_MOST), ROUNDS_MOST * slots / tiles);
  for (size_t n = 0; n < sizeof eighths / sizeof *eighths; n++) {
    const int64_t parts = min_of(eighths[n] * slots / 8 / tiles, most);
    if (parts < 2) continue;
    const struct ft_key_parts tried = ft_key_parts_divided(walks, arch, parts);
    if (tried.us < best.us) best = tried;
  }
  return best;
}

/* ---- rows of a block mask ---- */

struct ft_mask_rows ft_mask_rows_of_request(const struct ft_request *request,
                                            const struct ft_walks *walks, int packed) {
  const int64_t rows = (request->seqlen_q + request->mask_rows - 1) / request->mask_rows;
  const int64_t blocks = (request->seqlen_k + request->mask_cols - 1) / request->mask_cols;
  const struct ft_line_shares shares = ft_line_shares_of(request, rows);
  return (struct ft_mask_rows){
      .rows = rows,
      .tiles = max_of(1, (int64_t)request->mask_rows * packed / walks->block_m),
      .steps_of_a_block = max_of(1, request->mask_cols / walks->block_n),
      .heads = request->batch * request->heads_q / packed,
      .first = llround(shares.longest * (double)blocks),
      .others = llround(shares.others * (double)blocks),
  };
}

static int64_t steps_of_row(const struct ft_mask_rows *rows, int64_t row) {
  const int64_t kept = rows->counts ? rows->counts[row] : row == 0 ? rows->first : rows->others;
  return max_of(1, kept * rows->steps_of_a_block);
}

/* How many rows have walks of more than so many steps. */
static int64_t rows_longer_than(const struct ft_mask_rows *rows, int64_t steps) {
  int64_t first = 0, end = rows->rows;
  while (first < end) {
    const int64_t middle = (first + end) / 2;
    if (steps_of_row(rows, middle) > steps)
      first = middle + 1;
    else
      end = middle;
  }
  return first;
}

/* Time of the busiest block. In each round every block takes one part or tile, and this one takes
 * the longest of the round, which is the first that is dealt out. Of many rounds only SAMPLES are
 * computed. */
static double rounds_us(const struct ft_mask_rows *rows, const struct ft_key_parts *parts,
                        int64_t slots, double step) {
  enum { SAMPLES = 16 };
  const int64_t divided = rows->heads * parts->ranks, all = rows->heads * rows->rows * rows->tiles;
  const int64_t units = divided * parts->most + all - divided;
  const int64_t rounds = (units + slots - 1) / slots, sampled = min_of(rounds, SAMPLES);
  double us = 0;
  for (int64_t sample = 0; sample < sampled; sample++) {
    const int64_t unit = sample * rounds / sampled * slots;
    const int64_t rank = parts->ranks + (unit - divided * parts->most) / rows->heads;
    const int64_t steps = unit < divided * parts->most
                              ? parts->steps
                              : steps_of_row(rows, min_of(rank / rows->tiles, rows->rows - 1));
    us += (double)steps * step + PART_US;
  }
  return us * (double)rounds / (double)max_of(1, sampled);
}

struct ft_key_parts ft_key_parts_of_rows(const struct ft_mask_rows *rows,
                                         const struct ft_walks *walks, const struct ft_arch *arch) {
  static const int64_t counts[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  const int64_t slots = slots_of(walks, arch), longest = steps_of_row(rows, 0);
  const int64_t most = ft_key_parts_most(walks, arch);
  const double step = step_us(walks, arch, (double)min_of(walks->tiles, slots));
  struct ft_key_parts best = {.most = 1, .steps = longest};
  best.us = rounds_us(rows, &best, slots, step);
  for (size_t n = 0; n < sizeof counts / sizeof *counts && counts[n] <= longest; n++) {
    struct ft_key_parts tried = {.steps = (longest + counts[n] - 1) / counts[n]};
    tried.most = (longest + tried.steps - 1) / tried.steps;
    tried.ranks = rows_longer_than(rows, tried.steps) * rows->tiles;
    if (rows->heads * tried.ranks * tried.most > most) continue;
    struct ft_walks divided = *walks;
    divided.rows = rows->heads * tried.ranks * walks->block_m;
    tried.merge_us = merging_us(&divided, arch, (double)tried.most);
    tried.us = rounds_us(rows, &tried, slots, step) + tried.merge_us;
    if (tried.us < best.us) best = tried;
  }
  return best;
}

void ft_walks_measure(struct ft_walks *walks, const struct ft_visibility *visibility,
                      int64_t packed) {
  const int64_t rows = visibility->nq * packed,
                tiles = (rows + walks->block_m - 1) / walks->block_m;
  const int64_t looked_at[] = {0, tiles / 2, tiles - 1};
  int64_t steps[3];
  for (int n = 0; n < 3; n++) {
    const int64_t first = looked_at[n] * walks->block_m, end = min_of(first + walks->block_m, rows);
    const struct ft_interval queries = {first / packed, (end + packed - 1) / packed};
    const struct ft_steps walk = ft_steps_of_queries(visibility, queries, walks->block_n);
    steps[n] = max_of(0, walk.end - walk.begin);
  }
  walks->steps = max_of(max_of(steps[0], steps[1]), steps[2]);
  walks->mean = (steps[0] + 4 * steps[1] + steps[2] + 5) / 6; /* by Simpson's rule, rounded up */
}

void ft_walks_of_request(struct ft_walks *walks, const struct ft_request *request,
                         struct ft_pack pack) {
  const struct ft_visibility visibility = ft_visibility_of(request);
  const int packed = 1 << pack.bits;
  const int64_t rows = request->seqlen_q * packed;
  const int64_t of_a_head = (rows + walks->block_m - 1) / walks->block_m;
  walks->tiles = of_a_head * request->batch * (request->heads_q / pack.heads);
  walks->alike = of_a_head * (request->heads_q / request->heads_kv / pack.heads);
  walks->rows = request->batch * request->heads_q * request->seqlen_q;
  ft_walks_measure(walks, &visibility, packed);
}
