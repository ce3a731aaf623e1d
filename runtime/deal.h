/* deal.h: how evenly the tiles of wgmma kernels fall to the blocks that stay, where some are longer
 * than others (templates/parts/keys.cu.in).
 * in -> out: the tiles of a launch -> how many (batch, head) pairs go out tile by tile. */
#ifndef RUNTIME_DEAL_H
#define RUNTIME_DEAL_H

#include <stdint.h>

#include "generator/visibility.h"

/* The tiles of a pair are `rows` query rows each. A row i, of 2^pack_bits packed heads, is of query
 * i >> pack_bits. A step is `keys` keys. All fields are 64-bit: deals are compared as bytes. */
struct ft_deal {
  int64_t tiles, pairs, blocks; /* of a pair; in all; that share them */
  int64_t rows, keys;           /* of a tile; of a step */
  struct ft_visibility visibility;
  int64_t pack_bits;
  int64_t least, most; /* pairs that may go out tile by tile */
};

/* The steps that the busiest block takes when the last `pairs` go out tile by tile and all before
 * them in twos, over what it would take if all took the same: 1 is even. */
double ft_deal_unevenness(const struct ft_deal *deal, int64_t pairs);

/* Of some numbers from least to most the one for which that is smallest. Worked out once for a
 * thread's last few deals: 10 to 50 us. */
int64_t ft_deal_pairs(const struct ft_deal *deal);

#endif
