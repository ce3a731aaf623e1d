/* map_cache.h: the tensor maps that a plan has encoded last.
 * in -> out: all that a map is encoded from -> the map, until others take its place.
 * A map is a function of its key alone, so a map that is found is never out of date. Any number of
 * threads may look up and keep maps at once. No thread waits for another. */
#ifndef RUNTIME_MAP_CACHE_H
#define RUNTIME_MAP_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "generator/arguments.h"

enum { FT_MAP_DIMENSIONS = 5, FT_MAP_TENSORS = 6, FT_MAP_SLOTS = 8 };

/* A tensor as TMA counts it, the innermost dimension first. Fields beyond `dimensions` are 0. The
 * other arguments of cuTensorMapEncodeTiled are the same for all maps. */
struct ft_map_key {
  uint64_t address;
  uint64_t extents[FT_MAP_DIMENSIONS];
  uint64_t strides[FT_MAP_DIMENSIONS - 1]; /* bytes; stride n is of dimension n + 1 */
  unsigned box[FT_MAP_DIMENSIONS];
  unsigned dimensions;
  int type, promotion;
};

enum { FT_MAP_KEY_WORDS = 2 * FT_MAP_DIMENSIONS + (FT_MAP_DIMENSIONS + 3) / 2, FT_MAP_WORDS = 16 };
_Static_assert(sizeof(struct ft_map_key) == FT_MAP_KEY_WORDS * sizeof(uint64_t),
               "compared word by word: no padding");
_Static_assert(sizeof(struct ft_tensor_map) == FT_MAP_WORDS * sizeof(uint64_t), "kept whole");

/* version: 0 while the slot is empty, odd while it is written. A reader that sees the same even
 * version before and after its reads has read one whole entry. */
struct ft_map_slot {
  _Atomic uint64_t version;
  _Atomic uint64_t key[FT_MAP_KEY_WORDS], map[FT_MAP_WORDS];
};

/* Empty when all is 0. Each tensor of a launch has slots of its own. */
struct ft_map_cache {
  atomic_uint next[FT_MAP_TENSORS]; /* slot to be overwritten */
  struct ft_map_slot slots[FT_MAP_TENSORS][FT_MAP_SLOTS];
};

/* tensor: 0 .. FT_MAP_TENSORS - 1. An entry that is just being written is not found. */
bool ft_map_cache_find(struct ft_map_cache *cache, int tensor, const struct ft_map_key *key,
                       struct ft_tensor_map *map);

/* The map takes the place of the oldest entry. It is dropped where another thread writes there. */
void ft_map_cache_keep(struct ft_map_cache *cache, int tensor, const struct ft_map_key *key,
                       const struct ft_tensor_map *map);

#endif
