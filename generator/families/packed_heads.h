/* packed_heads.h: with pack_gqa the rows of a work tile belong to several query heads, which have
 * the same K and V. in -> out: config + query heads of a kv head -> how many of them share a tile.
 */
#ifndef GENERATOR_FAMILIES_PACKED_HEADS_H
#define GENERATOR_FAMILIES_PACKED_HEADS_H

#include <stdint.h>

#include "generator/config.h"
#include "generator/request.h"

#define FT_PACK_GQA_KNOB(KNOB)                                                                     \
  KNOB(pack_gqa, (0, 1), 0, 1,                                                                     \
       "1: query heads that share K and V share tiles, a row for each head of a query")

/* group: query heads of a kv head. With pack_gqa the result is the largest power of two that
 * divides the group, so that the 64 rows of a warpgroup hold whole queries; it is at most 64, and
 * small enough that rows fit into 32 bits. Without pack_gqa, and in families that do not know it,
 * the result is 1. A run may have another group than the request that its config was chosen for. */
int ft_packed_heads(const struct ft_config *config, int group, int64_t seqlen_q);

/* The same for a request; 1 where its numbers of heads are not known. */
int ft_packed_heads_of(const struct ft_config *config, const struct ft_request *request);

#endif
