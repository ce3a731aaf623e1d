/* packed_heads.h: query heads that share K and V, in the rows of one work tile.
 * in -> out: config + heads of a group -> how many are packed. */
#ifndef GENERATOR_FAMILIES_PACKED_HEADS_H
#define GENERATOR_FAMILIES_PACKED_HEADS_H

#include <stdint.h>

#include "generator/config.h"

/* Query heads of one kv head whose rows share tiles, query by query: with pack_gqa the largest
 * power of two that divides the group (so that the 64 rows of a warpgroup hold whole queries of
 * them), at most 64 and as many as keep rows within 32 bits; else, and in other families, 1. A run
 * may have another group than the request its config was chosen for: it packs what it can. */
int ft_packed_heads(const struct ft_config *config, int group, int64_t seqlen_q);

#endif
