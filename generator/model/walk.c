/* walk.c: how many steps the tiles of a problem take.
 * in -> out: request + tiles -> steps of the mean tile and of the longest. Which steps a tile has
 * is said by generator/visibility.c. */
#include "generator/model/walk.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "generator/visibility.h"

/* Of sequences of different lengths only the device knows the longest. In units of the mean one. */
static const double MIXED_LONGEST = 2;

/* Of the time of a merge as the division of the keys has it, by measured times of launches. */
static const double MERGE_SHARE = 0.8;

/* Tiles of rows or of keys of a request. 64-bit throughout: compared as bytes. */
struct walked {
  struct ft_visibility visibility;
  int64_t of_keys; /* 1: tiles are of keys and steps of queries; 0: the other way round */
  int64_t length;  /* rows or keys that the tiles divide up */
  int64_t block_m, block_n, packed;
  int64_t varies, ragged;
  double density, of_longest; /* kept shares of steps: of the mean walk and of the longest */
};

static struct walked walked_of(const struct ft_request *request, struct ft_tiling tiling,
                               bool of_keys) {
  struct walked it;
  memset(&it, 0, sizeof it);
  it.visibility = ft_visibility_of(request);
  it.of_keys = of_keys;
  it.length = of_keys ? request->seqlen_k : request->seqlen_q * tiling.packed;
  it.block_m = tiling.block_m;
  it.block_n = tiling.block_n;
  it.packed = tiling.packed;
  it.varies = ft_visibility_varies(request);
  it.ragged = request->ragged;
  it.density = request->mask_rows > 0 ? request->mask_density : 1;
  it.of_longest = fmin(1, it.density * (double)request->mask_longest);
  return it;
}

static double steps_of_query_tile(const struct walked *it, int64_t tile) {
  const int64_t first = tile * it->block_m, beyond = first + it->block_m;
  const int64_t end = beyond < it->length ? beyond : it->length;
  const struct ft_interval queries = {first / it->packed, (end + it->packed - 1) / it->packed};
  const struct ft_steps steps = ft_steps_of_queries(&it->visibility, queries, (int)it->block_n);
  return (double)(steps.end - steps.begin);
}

static double steps_of_key_tile(const struct walked *it, int64_t tile) {
  const int64_t first = tile * it->block_n, beyond = first + it->block_n;
  const struct ft_interval keys = {first, beyond < it->length ? beyond : it->length};
  const struct ft_steps steps = ft_steps_of_keys(&it->visibility, keys, (int)it->block_m);
  return (double)(steps.end - steps.begin);
}

/* Over all tiles, or over a sample of them. */
static struct ft_walk walk(const struct walked *it) {
  enum { SAMPLES = 512 }; /* more would only smooth */
  const int64_t block = it->of_keys ? it->block_n : it->block_m;
  const int64_t tiles = (it->length + block - 1) / block;
  const int64_t most = it->varies ? SAMPLES : 1;
  const int64_t samples = tiles < most ? tiles : most;
  struct ft_walk walk = {0};
  for (int64_t sample = 0; sample < samples; sample++) {
    const int64_t tile = samples == tiles ? sample : (2 * sample + 1) * tiles / (2 * samples);
    const double steps = it->of_keys ? steps_of_key_tile(it, tile) : steps_of_query_tile(it, tile);
    walk.mean += steps * it->density / (double)samples;
    walk.longest = fmax(walk.longest, steps * it->of_longest);
    walk.shortest = sample == 0 ? steps * it->density : fmin(walk.shortest, steps * it->density);
  }
  if (it->ragged) walk.longest = fmax(walk.longest, MIXED_LONGEST * walk.mean);
  return walk;
}

/* The same walk, from a table that each thread keeps: the configs of a request share few tiles. */
static struct ft_walk walk_remembered(const struct walked *it) {
  enum { PLACES = 64 };
  static _Thread_local struct {
    struct walked it;
    struct ft_walk walk;
  } known[PLACES];
  if (!it->varies) return walk(it);
  const uint64_t tiling = (uint64_t)((it->block_m * 512 + it->block_n) * 64 + it->packed);
  const size_t place = (size_t)(tiling * 0x9E3779B97F4A7C15u >> 58);
  static_assert(PLACES == 1 << (64 - 58), "the highest bits");
  if (memcmp(&known[place].it, it, sizeof *it) != 0) {
    known[place].it = *it;
    known[place].walk = walk(it);
  }
  return known[place].walk;
}

struct ft_walk ft_walk_of_queries(const struct ft_request *request, struct ft_tiling tiling) {
  const struct walked it = walked_of(request, tiling, false);
  return walk_remembered(&it);
}

struct ft_walk ft_walk_of_keys(const struct ft_request *request, struct ft_tiling tiling) {
  const struct walked it = walked_of(request, tiling, true);
  const struct ft_walk of_a_head = walk_remembered(&it);
  const double heads = (double)request->heads_q / request->heads_kv;
  return (struct ft_walk){.mean = of_a_head.mean * heads, .longest = of_a_head.longest * heads};
}

double ft_cycles_of_uneven(const struct ft_request *request, double even, double longest) {
  enum { FEW_QUERIES = 16 }; /* of a sequence, in the mean */
  const double all = fmax(even, longest);
  return request->ragged && request->seqlen_q < FEW_QUERIES ? (all + longest) / 2 : all;
}

/* Under a block mask: the longest walks, of the first `ranks` tiles of each head. */
static struct ft_divided_walk divide_longest(const struct ft_request *request,
                                             const struct ft_arch *arch, struct ft_walk walk,
                                             int packed, const struct ft_walks *walks) {
  const struct ft_mask_rows rows = ft_mask_rows_of_request(request, walks, packed);
  const struct ft_key_parts divided = ft_key_parts_of_rows(&rows, walks, arch);
  const double more = (double)divided.ranks * (double)(divided.most - 1);
  const double parts = 1 + more / (double)(rows.rows * rows.tiles);
  const double longest = fmin(walk.longest, (double)divided.steps);
  return (struct ft_divided_walk){
      {.mean = walk.mean / parts, .longest = fmax(walk.mean / parts, longest)},
      parts,
      MERGE_SHARE * divided.merge_us,
      (double)rows.heads * fmax((double)rows.tiles, (double)divided.ranks * (double)divided.most)};
}

struct ft_divided_walk ft_divide_walk(const struct ft_request *request, const struct ft_arch *arch,
                                      struct ft_walk walk, struct ft_pack pack,
                                      struct ft_walks *walks) {
  ft_walks_of_request(walks, request, pack);
  if (walks->longest) return divide_longest(request, arch, walk, pack.heads, walks);
  const struct ft_key_parts divided = ft_key_parts_of(walks, arch);
  const double steps = (double)divided.steps;
  const double wanted = fmin(ceil(walk.mean / steps), (double)divided.most);
  const double parts = fmax(1, wanted);
  return (struct ft_divided_walk){{.mean = walk.mean / parts, .longest = fmin(walk.longest, steps)},
                                  parts,
                                  MERGE_SHARE * divided.merge_us,
                                  0};
}
