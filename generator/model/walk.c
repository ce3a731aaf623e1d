/* walk.c: how many steps the tiles of a problem take.
 * in -> out: request + tiles -> steps of the mean tile and of the longest. Which steps a tile has
 * is said by generator/visibility.c. */
#include "generator/model/walk.h"

#include <math.h>

#include "generator/visibility.h"

/* Of sequences of different lengths only the device knows the longest. In units of the mean one. */
static const double MIXED_LONGEST = 2;

/* Of the time of a merge as the division of the keys has it, by measured times of launches. */
static const double MERGE_SHARE = 0.8;

struct walked {
  struct ft_visibility visibility;
  struct ft_tiling tiling;
  int64_t length; /* rows or keys that the tiles divide up */
};

static double steps_of_query_tile(const struct walked *it, int64_t tile) {
  const int64_t first = tile * it->tiling.block_m, beyond = first + it->tiling.block_m;
  const int64_t end = beyond < it->length ? beyond : it->length;
  const struct ft_interval queries = {first / it->tiling.packed,
                                      (end + it->tiling.packed - 1) / it->tiling.packed};
  const struct ft_steps steps = ft_steps_of_queries(&it->visibility, queries, it->tiling.block_n);
  return (double)(steps.end - steps.begin);
}

static double steps_of_key_tile(const struct walked *it, int64_t tile) {
  const int64_t first = tile * it->tiling.block_n, beyond = first + it->tiling.block_n;
  const struct ft_interval keys = {first, beyond < it->length ? beyond : it->length};
  const struct ft_steps steps = ft_steps_of_keys(&it->visibility, keys, it->tiling.block_m);
  return (double)(steps.end - steps.begin);
}

/* Over all tiles, or over a sample of them. */
static struct ft_walk walk(const struct ft_request *request, const struct walked *it, int block,
                           double (*steps_of)(const struct walked *it, int64_t tile)) {
  enum { SAMPLES = 512 }; /* more would only smooth */
  const double density = request->mask_rows > 0 ? request->mask_density : 1;
  const double of_longest = fmin(1, density * (double)request->mask_longest);
  const int64_t tiles = (it->length + block - 1) / block;
  const int64_t most = ft_visibility_varies(request) ? SAMPLES : 1;
  const int64_t samples = tiles < most ? tiles : most;
  struct ft_walk walk = {0};
  for (int64_t sample = 0; sample < samples; sample++) {
    const int64_t tile = samples == tiles ? sample : (2 * sample + 1) * tiles / (2 * samples);
    const double steps = steps_of(it, tile);
    walk.mean += steps * density / (double)samples;
    walk.longest = fmax(walk.longest, steps * of_longest);
    walk.shortest = sample == 0 ? steps * density : fmin(walk.shortest, steps * density);
  }
  if (request->ragged) walk.longest = fmax(walk.longest, MIXED_LONGEST * walk.mean);
  return walk;
}

struct ft_walk ft_walk_of_queries(const struct ft_request *request, struct ft_tiling tiling) {
  const struct walked it = {ft_visibility_of(request), tiling, request->seqlen_q * tiling.packed};
  return walk(request, &it, tiling.block_m, steps_of_query_tile);
}

struct ft_walk ft_walk_of_keys(const struct ft_request *request, struct ft_tiling tiling) {
  const struct walked it = {ft_visibility_of(request), tiling, request->seqlen_k};
  const struct ft_walk of_a_head = walk(request, &it, tiling.block_n, steps_of_key_tile);
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
