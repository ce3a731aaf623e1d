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

enum { WARPGROUP_ROWS = 64, KEYS = 64, MOST_SMS = 256 };

/* Tiles of these rows, in steps of 64 to so many keys. */
static const struct { int rows, columns; } tiles[] = {{64, 128}, {128, 128}, {192, 128}, {256, 64}};

/* The tiles of a head, and how many heads have as many. */
struct heads {
  struct ft_visibility visibility;
  int64_t rows, packed; /* of a head, or of several whose rows are packed */
  int64_t tiles, count;
  int block_m, block_n;
};

static struct heads heads_of(const struct ft_request *request, const struct ft_config *config) {
  const struct ft_pack pack = ft_pack_of(config, request);
  struct heads heads = {.visibility = ft_visibility_of(request),
                        .packed = (int64_t)1 << pack.bits,
                        .count = request->batch * (request->heads_q / pack.heads),
                        .block_m = ft_config_block_m(config),
                        .block_n = ft_config_block_n(config)};
  heads.rows = request->seqlen_q * heads.packed;
  heads.tiles = (heads.rows + heads.block_m - 1) / heads.block_m;
  return heads;
}

/* Steps that a tile of a head walks over. */
static double steps_of(const struct heads *heads, int64_t tile) {
  const int64_t first = tile * heads->block_m, beyond = first + heads->block_m,
                end = beyond < heads->rows ? beyond : heads->rows, packed = heads->packed;
  const struct ft_interval queries = {first / packed, (end + packed - 1) / packed};
  const struct ft_steps seen = ft_steps_of_queries(&heads->visibility, queries, heads->block_n);
  return seen.end > seen.begin ? (double)(seen.end - seen.begin) : 1;
}

/* What a tile takes, and each of its steps. */
struct costs {
  double tile, step;
};

/* Puts a longer time in the place of the least of a heap. */
static void replace_least(double *heap, int count, double time) {
  int at = 0;
  for (;;) {
    int next = 2 * at + 1;
    if (next + 1 < count && heap[next + 1] < heap[next]) ++next;
    if (next >= count || heap[next] >= time) break;
    heap[at] = heap[next];
    at = next;
  }
  heap[at] = time;
}

/* When the last tile ends, where the longest walks come first, and each tile goes to the
 * multiprocessor that is free first. Causal walks are longest at the end of a head. */
static double last_end(const struct heads *heads, struct costs costs, int sms) {
  double ends[MOST_SMS] = {0}, last = 0;
  for (int64_t tile = heads->tiles - 1; tile >= 0; --tile) {
    const double time = costs.tile + costs.step * steps_of(heads, tile);
    for (int64_t head = 0; head < heads->count; ++head) {
      const double end = ends[0] + time;
      replace_least(ends, sms, end);
      last = fmax(last, end);
    }
  }
  return last;
}

/* What last_end is at least. */
static double least_end(const struct heads *heads, struct costs costs, double sms) {
  double steps = 0;
  for (int64_t tile = 0; tile < heads->tiles; ++tile) steps += steps_of(heads, tile);
  const double all = costs.tile * (double)heads->tiles + costs.step * steps;
  return fmax(costs.tile + costs.step * steps_of(heads, heads->tiles - 1),
              all * (double)heads->count / sms);
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

/* Microseconds that a config is expected to take beside what any launch takes; HUGE_VAL where it
 * does not take less than `bound`. */
static double estimate(const struct ft_request *request, const struct ft_arch *arch,
                       const struct ft_config *config, double bound) {
  enum { TURNS_HIDE = 128 }; /* two warpgroups, of which one works while the other masks */
  static const double TILE = 0.58, ROWS = 0.63, /* of 64 rows of d128: Q comes, O goes */
      FIRST = 0.36,                             /* 64 keys that the first step waits for */
      MASKED = 0.5;                             /* a diagonal that crosses two steps */
  const struct heads heads = heads_of(request, config);
  const int sms = min_int(max_int(1, arch->sm_count), MOST_SMS);
  const double width = (request->head_dim + request->head_dim_v) / 256.0;
  const struct costs costs = {.tile = TILE + ROWS * width * heads.block_m / WARPGROUP_ROWS,
                              .step = step_us(request, config)};
  const double first = FIRST * heads.block_n / KEYS;
  const double all = (double)(heads.tiles * heads.count);
  if (!ft_visibility_varies(request))
    return first + ceil(all / sms) * (costs.tile + costs.step * steps_of(&heads, 0));
  const bool crossed = heads.block_m != TURNS_HIDE && heads.block_n % WARPGROUP_ROWS != 0;
  const double more = first + (crossed ? fmax(1, all / sms) * MASKED : 0);
  if (more + least_end(&heads, costs, sms) >= bound) return HUGE_VAL;
  return more + last_end(&heads, costs, sms);
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
  const struct heads heads = heads_of(request, &config);
  if (!varies || heads.tiles * heads.count > arch->sm_count) return config;
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
        const double factor = pack ? PACKED : 1;
        const double us = factor * estimate(request, arch, &tried, least / factor);
        if (us < least) *config = tried;
        least = fmin(us, least);
      }
  return least < HUGE_VAL;
}
