/* deal.h: how evenly the tiles of wgmma kernels fall to the blocks that stay, where some are longer
 * than others (templates/parts/keys.cu.in).
 * in -> out: the tiles of a launch -> how many (batch, head) pairs go out tile by tile. */
#ifndef RUNTIME_DEAL_H
#define RUNTIME_DEAL_H

#include <stdint.h>

/* The tiles of a pair are `rows` query rows each; row i, of 2^pack_bits heads packed, sees keys
 * j <= (i >> pack_bits) + causal_shift, `keys` of them in a step. All 64-bit: compared as bytes. */
struct ft_deal {
  int64_t tiles, pairs, blocks; /* of a pair; in all; that share them */
  int64_t rows, keys;           /* of a tile; of a step */
  int64_t nq, nk;               /* packed rows; keys */
  int64_t causal_shift, pack_bits;
  int64_t least, most; /* pairs that may go out tile by tile */
};

/* The steps that the busiest block takes when the last `pairs` go out tile by tile and all before
 * them in twos, over what it would take if all took the same: 1 is even. */
double ft_deal_unevenness(const struct ft_deal *deal, int64_t pairs);

/* Of some numbers from least to most the one for which that is smallest. Worked out once for a
 * thread's last few deals: 10 to 50 us. */
int64_t ft_deal_pairs(const struct ft_deal *deal);

#endif
