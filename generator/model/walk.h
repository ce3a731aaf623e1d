/* walk.h: how many steps the tiles of a problem take.
 * in -> out: request + tiles -> steps of the mean tile and of the longest. */
#ifndef GENERATOR_WALK_H
#define GENERATOR_WALK_H

#include "generator/arch.h"
#include "generator/key_parts.h"
#include "generator/request.h"

/* Steps of a tile, over all tiles. Under a block-sparse mask these are the kept share of them. */
struct ft_walk {
  double mean, longest;
  double shortest; /* of undivided walks of queries; else 0 */
};

struct ft_tiling {
  int block_m, block_n;
  int packed; /* of a tile's block_m rows a query has so many, where heads are packed */
};

/* Of tiles of block_m rows, in steps of block_n keys. */
struct ft_walk ft_walk_of_queries(const struct ft_request *request, struct ft_tiling tiling);
/* Of tiles of block_n keys, in steps of block_m queries, one query head that shares the keys after
 * the other. */
struct ft_walk ft_walk_of_keys(const struct ft_request *request, struct ft_tiling tiling);

/* Cycles of a launch whose even share of all walks, and whose longest walk, take so many. Where
 * packed sequences have few queries, these may all be of a few sequences, and then the longest walk
 * is what is left. As nobody knows, this is taken to be as likely as not. */
double ft_cycles_of_uneven(const struct ft_request *request, double even, double longest);

/* What becomes of the walks of a request's tiles when they are divided into parts (generator/
 * key_parts.h): the walk of a part, and how many parts the mean tile has. walks: with what the
 * family says; the rest is filled in. */
struct ft_divided_walk {
  struct ft_walk walk;
  double parts, merge_us;
  double long_parts; /* under a block mask: of all walks that are as long as the longest */
};
struct ft_divided_walk ft_divide_walk(const struct ft_request *request, const struct ft_arch *arch,
                                      struct ft_walk walk, struct ft_pack pack,
                                      struct ft_walks *walks);

#endif
