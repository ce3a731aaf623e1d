/* wgmma_forward_small.c: the default config of small forwards by wgmma.
 * in -> out: request + arch -> config.
 *
 * A small problem is over in a few microseconds. What counts is how many tiles the busiest
 * multiprocessor takes and how many keys they walk over, beyond the end, too. Of a table of tiles
 * the one with the least estimate is taken. The constants are the least squares of 518 timings of
 * 31 requests on an H200, of 5 to 40 us, which the estimate meets to 6 % (bench/ledger.md). */
#include <math.h>

#include "generator/families/plan.h"
#include "generator/families/wgmma_forward.h"
#include "generator/visibility.h"

enum { WARPGROUP_ROWS = 64, KEYS = 64 };

/* Tiles of these rows, in steps of 64 to so many keys. */
static const struct { int rows, columns; } tiles[] = {{64, 128}, {128, 128}, {192, 128}, {256, 64}};

/* How many tiles all heads have, and over how many steps a tile walks. */
struct walks {
  double tiles;
  double mean, longest; /* steps */
};

static struct walks walks_of(const struct ft_request *request, const struct ft_config *config) {
  const struct ft_visibility visibility = ft_visibility_of(request);
  const struct ft_pack pack = ft_pack_of(config, request);
  const int block_m = ft_config_block_m(config), block_n = ft_config_block_n(config);
  const int64_t packed = (int64_t)1 << pack.bits, rows = request->seqlen_q * packed;
  int64_t of_a_head = 0, steps = 0, longest = 0;
  for (int64_t first = 0; first < rows; first += block_m, ++of_a_head) {
    const int64_t end = first + block_m < rows ? first + block_m : rows;
    const struct ft_interval queries = {first / packed, (end + packed - 1) / packed};
    const struct ft_steps seen = ft_steps_of_queries(&visibility, queries, block_n);
    const int64_t walk = seen.end > seen.begin ? seen.end - seen.begin : 1;
    steps += walk;
    if (walk > longest) longest = walk;
  }
  return (struct walks){
      .tiles = (double)(of_a_head * request->batch * (request->heads_q / pack.heads)),
      .mean = (double)steps / (double)of_a_head,
      .longest = (double)longest,
  };
}

/* How often a step draws the bits of dropout for the same 64 columns. */
static double draws_of(int block_n) {
  return block_n % 64 == 0 ? 1 : block_n % 32 == 0 ? 2 : 4;
}

/* Microseconds of a step. */
static double step_us(const struct ft_request *request, const struct ft_config *config) {
  static const double STEP = 0.08, SOFTMAX = 0.17, PRODUCTS = 0.28, /* of 64 keys, 64 rows, d128 */
      DROPOUT = 0.14, OPERANDS = 0.14; /* of e4m3, whose P changes places */
  const double rows = (double)ft_config_block_m(config) / WARPGROUP_ROWS;
  const double width = (request->head_dim + request->head_dim_v) / 256.0;
  const bool e4m3 = request->dtype == FT_E4M3;
  double keys = SOFTMAX + PRODUCTS * rows * width * (e4m3 ? 0.5 : 1) + (e4m3 ? OPERANDS : 0);
  if (request->dropout) keys += DROPOUT * rows * draws_of(ft_config_block_n(config));
  return STEP + keys * ft_config_block_n(config) / KEYS;
}

/* Microseconds that a config is expected to take beside what any launch takes. Blocks that take
 * several tiles of unequal walks take about the mean, and the end of some is waited for. */
static double estimate(const struct ft_request *request, const struct ft_arch *arch,
                       const struct ft_config *config) {
  enum { TURNS_HIDE = 128 }; /* two warpgroups, of which one works while the other masks */
  static const double TILE = 0.58, ROWS = 0.63, /* of 64 rows of d128: Q comes, O goes */
      FIRST = 0.36,                             /* 64 keys that the first step waits for */
      UNEVEN = 0.15, MASKED = 0.5;              /* a diagonal that crosses two steps */
  const struct walks walks = walks_of(request, config);
  const int block_m = ft_config_block_m(config), block_n = ft_config_block_n(config);
  const double sms = max_int(1, arch->sm_count), step = step_us(request, config);
  const double width = (request->head_dim + request->head_dim_v) / 256.0;
  const double tile = TILE + ROWS * width * block_m / WARPGROUP_ROWS;
  const double longest = tile + walks.longest * step, mean = tile + walks.mean * step;
  const double first = FIRST * block_n / KEYS;
  if (!ft_visibility_varies(request)) return first + ceil(walks.tiles / sms) * longest;
  const double rounds = walks.tiles > sms ? walks.tiles / sms + UNEVEN : 1;
  const bool crossed = block_m != TURNS_HIDE && block_n % WARPGROUP_ROWS != 0;
  return first + fmax(longest, rounds * mean) + (crossed ? rounds * MASKED : 0);
}

/* The switches of a tile. Maxima as integers need a little more to begin with. Where all walks are
 * alike, warpgroups take turns for the products, too. Where every block has one tile, the order of
 * the tiles is the simplest, longest first, and wide steps do without what is for the next tile. */
static struct ft_config config_of(const struct ft_request *request, const struct ft_arch *arch,
                                  struct ft_wgmma_forward_knobs knobs_of) {
  enum { FEW_KEYS = 512 };
  const bool varies = ft_visibility_varies(request), lone = knobs_of.block_m == WARPGROUP_ROWS;
  const bool turns_by_products = !varies && !request->dropout && request->dtype != FT_E4M3 &&
                                 knobs_of.block_m < 4 * WARPGROUP_ROWS;
  knobs_of.q_stages = 2;
  knobs_of.overlap_tiles = knobs_of.lazy_rescale = knobs_of.direct_store = 1;
  knobs_of.pingpong = lone ? 0 : 1 + turns_by_products;
  knobs_of.integer_max = !lone || request->seqlen_k > FEW_KEYS;
  struct ft_config config = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
  if (!varies || walks_of(request, &config).tiles > arch->sm_count) return config;
  knobs_of.lpt = 1;
  if (lone && knobs_of.block_n > KEYS) knobs_of.q_stages = 1;
  knobs_of.overlap_tiles = knobs_of.q_stages > 1;
  return ft_config_make(&ft_wgmma_forward_family, &knobs_of);
}

/* Sets *config to these knobs with as many stages as there is room for. false: there is none. */
static bool with_stages(const struct ft_request *request, const struct ft_arch *arch,
                        struct ft_wgmma_forward_knobs knobs_of, struct ft_config *config) {
  for (knobs_of.stages = 3; knobs_of.stages >= 2; --knobs_of.stages) {
    *config = config_of(request, arch, knobs_of);
    if (ft_wgmma_forward_fits(request, arch, config)) return true;
  }
  return false;
}

/* Whether the estimate was measured for such a request. Its queries see all keys, or are causal.
 * Heads have up to 128 columns, and either up to 1024 queries and three rounds of tiles of 128 rows
 * at most, or more queries and one round of tiles: of 64 rows, or of 256 where they are causal.
 * Wider heads are of 16 bits and causal, with one round of tiles of 64 rows. */
static bool is_small(const struct ft_request *request, const struct ft_arch *arch) {
  enum { LENGTH = 1024, LONG = 4096, ROWS = 128, MOST_ROWS = 256, ROUNDS = 3, WIDE = 192 };
  if (!ft_heads_are_plain(request) || request->window || request->heads_kv == 0 ||
      request->seqlen_k == 0 || request->seqlen_k > LONG || request->seqlen_q < WARPGROUP_ROWS ||
      request->seqlen_q > LONG)
    return false;
  const int64_t sms = arch->sm_count;
  const int head_dim = max_int(request->head_dim, request->head_dim_v);
  if (head_dim > ROWS)
    return head_dim > WIDE && request->causal && !request->dropout && request->dtype != FT_E4M3 &&
           ft_tiles_fit(request, WARPGROUP_ROWS, sms);
  return ft_tiles_fit(request, request->causal ? MOST_ROWS : WARPGROUP_ROWS, sms) ||
         (request->seqlen_q <= LENGTH && ft_tiles_fit(request, ROWS, ROUNDS * sms));
}

/* Packed heads are worth their divisions where they save a tenth. */
bool ft_wgmma_forward_small(const struct ft_request *request, const struct ft_arch *arch,
                            struct ft_config *config) {
  enum { NARROW = 128, SMALLEST = 64 };
  static const double PACKED = 1 / 0.9;
  if (!is_small(request, arch)) return false;
  const bool narrow = max_int(request->head_dim, request->head_dim_v) <= NARROW;
  double least = HUGE_VAL;
  for (int pack = 0; pack < 2; ++pack)
    for (int m = 0; m < (narrow ? FT_COUNT(tiles) : 1); ++m)
      for (int columns = SMALLEST; columns <= (narrow ? tiles[m].columns : SMALLEST);
           columns += 16) {
        const struct ft_wgmma_forward_knobs knobs_of = {TILE(tiles[m].rows, columns),
                                                        .pack_gqa = pack};
        struct ft_config tried;
        if (!with_stages(request, arch, knobs_of, &tried)) continue;
        const double us = estimate(request, arch, &tried) * (pack ? PACKED : 1);
        if (us < least) *config = tried;
        least = fmin(us, least);
      }
  return least < HUGE_VAL;
}
