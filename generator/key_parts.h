/* key_parts.h: into how many parts the walks of a forward's work tiles are divided, so that a few
 * work tiles with many keys fill the GPU. The C twin of templates/parts/key_parts.cu.in.
 * in -> out: work tiles of a launch -> parts, and what they cost. */
#ifndef GENERATOR_KEY_PARTS_H
#define GENERATOR_KEY_PARTS_H

#include <stdbool.h>

#include "generator/arch.h"
#include "generator/request.h"
#include "generator/visibility.h"

#define FT_SPLIT_KEYS_KNOB(KNOB)                                                                   \
  KNOB(split_keys, (0, 1, 8), 0, 16,                                                               \
       "1: the keys of a work tile may be divided up among blocks, a run says into how many "      \
       "parts, and a second kernel puts them together; 2, 4, 8, 16: among the blocks of a "        \
       "cluster, which put them together themselves")

/* By how much the time that K and V take from DRAM grows where each load asks for `piece` bytes of
 * a row. A load of fewer than 64 bytes takes as long as one of 64. piece 0: loads are no smaller.
 */
double ft_piece_cost(int piece);

/* What a launch has to do. A step is block_n keys of one work tile. The family fills in the second
 * group. */
struct ft_walks {
  int64_t tiles; /* work tiles of all batch_heads */
  int64_t steps; /* of the longest walk */
  int64_t mean;  /* of the mean walk, where that is known; 0: all are as long as the longest */
  int64_t rows;  /* query rows of all batch_heads */
  int64_t alike; /* work tiles that read the same K and V; 0: one */
  bool mixed;    /* only the device knows how long walks are: from none to the longest */
  bool shared;   /* blocks have equal shares of all steps (generator/stream.h) */
  bool longest;  /* under a block mask, of which the longest walks alone are divided */

  int cluster;              /* parts of every walk, the blocks of a cluster; 0: a run chooses */
  int blocks_per_sm;        /* that are resident on a multiprocessor at once */
  int block_m, block_n;     /* a step's scores */
  int head_dim, head_dim_v; /* padded */
  int bytes;                /* of an element of K and V; 0: two */
  bool converts;            /* blocks turn the bytes of K and V into operands of 16 bits */
  int piece;                /* bytes of a row of K or V that a load asks for at once; 0: any */
  int stages;               /* steps of K and V that a block has room for; 0: one */
  int warps;                /* of a block that compute; 0: enough for all tensor cores */
  double mma_flops_per_clk; /* of the family's products, on a multiprocessor */
};

/* Query heads that share work tiles: each query has 2^bits rows side by side, the first `heads` of
 * them of a head each, the others of none. {0, 1}: no heads do. */
struct ft_pack {
  int bits, heads;
};

/* Fills in the first group from a request with lengths. */
void ft_walks_of_request(struct ft_walks *walks, const struct ft_request *request,
                         struct ft_pack pack);

/* Parts of the longest walk; 1: no walk is divided. Shorter walks have a part for each `steps`. */
struct ft_key_parts {
  int64_t most, steps;
  int64_t ranks; /* under a block mask: the tiles of a head, longest first, that are divided */
  double us, merge_us; /* estimates: of all; of what is written, read and merged besides */
};

/* Those that are expected to take least time, or those of a cluster. */
struct ft_key_parts ft_key_parts_of(const struct ft_walks *walks, const struct ft_arch *arch);

/* Rows of blocks of a block mask, as work tiles take them. */
struct ft_mask_rows {
  const int32_t *counts;    /* [rows]: kept blocks, most first; NULL: as the next two say */
  int64_t rows;             /* at least 1 */
  int64_t tiles;            /* of a row, at least 1 */
  int64_t steps_of_a_block; /* of a tile's walk */
  int64_t heads;            /* batch_heads */
  int64_t first, others;    /* kept blocks of the first row, of each other one */
};

/* The same by the hints of a request that has a mask: one row is as long as the longest, the others
 * are alike. */
struct ft_mask_rows ft_mask_rows_of_request(const struct ft_request *request,
                                            const struct ft_walks *walks, int packed);

/* The same where some walks are longer than others: those with more than `steps` steps are divided,
 * the first `ranks` tiles of each head. Blocks take parts and then whole tiles, longest first, one
 * a round; the walks are divided as is expected to take least time, if that is less than whole. */
struct ft_key_parts ft_key_parts_of_rows(const struct ft_mask_rows *rows,
                                         const struct ft_walks *walks, const struct ft_arch *arch);

/* So many parts of the longest walk, or as many as it has steps for; 1: none is divided. */
struct ft_key_parts ft_key_parts_divided(const struct ft_walks *walks, const struct ft_arch *arch,
                                         int64_t parts);

/* Clusters of walks->cluster blocks, which is not 0, that are resident at once. */
int64_t ft_clusters_at_once(const struct ft_walks *walks, const struct ft_arch *arch);

/* Whether so many work tiles are few enough that their walks may be divided. */
bool ft_key_parts_pay(int64_t tiles, int64_t slots);

/* Parts that any launch with at most so many work tiles and steps has over all work tiles, where
 * its walks are divided. */
int64_t ft_key_parts_most(const struct ft_walks *walks, const struct ft_arch *arch);

/* Fills in steps and mean from block_m and block_n: the first, the middle and the last tile are
 * looked at. packed: heads whose rows a tile has. */
void ft_walks_measure(struct ft_walks *walks, const struct ft_visibility *visibility,
                      int64_t packed);

#endif
