/* packed_heads.h: with pack_gqa the rows of a work tile belong to several query heads, which have
 * the same K and V. in -> out: config + query heads of a kv head -> struct ft_pack. */
#ifndef GENERATOR_FAMILIES_PACKED_HEADS_H
#define GENERATOR_FAMILIES_PACKED_HEADS_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/config.h"
#include "generator/key_parts.h"
#include "generator/request.h"
#include "generator/rules.h"

#define FT_PACK_GQA_KNOB(KNOB)                                                                     \
  KNOB(pack_gqa, (0, 1), 0, 1,                                                                     \
       "1: query heads that share K and V share tiles, a row for each head of a query")

bool ft_config_packs(const struct ft_config *config);

/* group: query heads of a kv head. A query has a power of two of rows, 64 at most, so that the 64
 * rows of a warpgroup hold whole queries. Where the queries of the whole group fit one tile so,
 * these are all heads, and some rows are of none; not under a block mask. Else they are as many
 * heads as divide the group. Rows of all queries fit into 32 bits. Without pack_gqa, and in
 * families that do not know it, no heads are packed. A run may have another group than the request
 * that its config was chosen for. */
struct ft_pack ft_pack_of_group(const struct ft_config *config, bool masked, int group,
                                int64_t seqlen_q);

/* The same for a request; {0, 1} where its numbers of heads are not known. */
struct ft_pack ft_pack_of(const struct ft_config *config, const struct ft_request *request);

/* The rule that pack_gqa packs heads. */
#define FT_PACKED_GROUP_SAYS                                                                       \
  "heads are packed where a tile has room for all rows of a group, or by a power of two that "     \
  "divides it"
bool ft_packed_group(const struct ft_rule_case *of);

/* As kernels have it in one number, and back: bits where no row is of none. */
int ft_pack_code(struct ft_pack pack);
struct ft_pack ft_pack_of_code(int code);

#endif
