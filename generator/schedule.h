/* schedule.h: the tile scheduler of a forward kernel: which block takes which work tile, in which
 * order. The C twin of templates/parts/schedule_NAME.cu.in.
 * in -> out: request + config -> its form; the work tiles of a launch -> sections, shares, grid. */
#ifndef GENERATOR_SCHEDULE_H
#define GENERATOR_SCHEDULE_H

#include "generator/arch.h"
#include "generator/config.h"
#include "generator/visibility.h"

enum ft_schedule {
  FT_SCHEDULE_STATIC,   /* persistent blocks share out tiles that are alike, by their number */
  FT_SCHEDULE_BALANCED, /* persistent blocks take a long and a short tile together */
  FT_SCHEDULE_LPT,      /* longest processing time first, in sections that L2 serves */
  FT_SCHEDULE_SPLIT,    /* parts of tiles whose keys are divided up (generator/key_parts.h) */
  FT_SCHEDULE_LONGEST,  /* the same of the longest walks under a block mask; whole tiles as LPT */
  FT_SCHEDULE_CLUSTER,  /* the same, where a tile's parts are the blocks of a cluster */
  FT_SCHEDULE_STREAM,   /* equal shares of all steps, where the device knows how many (stream.h) */
  FT_SCHEDULE_RAGGED,   /* a list of tiles of sequences of different lengths, made on the device */
};

/* The one place that decides. */
enum ft_schedule ft_schedule_of(const struct ft_request *request, const struct ft_config *config);

/* As in the name of the template part: "static", "balanced", "lpt", "split", "longest", "cluster",
 * "stream", "ragged". */
const char *ft_schedule_name(enum ft_schedule schedule);

/* Tiles of one head. Under a mask every block of it has all its tiles, the last one some beyond the
 * length. */
int64_t ft_schedule_tiles(int64_t length, int64_t mask_block, int tile);

/* How many batch_heads make an L2 section. Where tiles differ, those of a section run longest
 * first. A section is as large as lets all that its batch_heads load, `bytes` for each `step` of
 * them, stay in half of L2. Where tiles are alike one head after the other reuses L2 best: 1. */
int64_t ft_schedule_section(const struct ft_request *request, const struct ft_arch *arch,
                            int64_t bytes, int64_t step, int64_t heads);

/* A section of at most `most` batch_heads, that all sections may be as large as one another: else
 * the last one has few tiles, and the longest of them ends after all others. More than half of
 * `most`, where a number of heads can be divided like that. */
int64_t ft_schedule_even_section(int64_t most, int64_t heads);

/* The key tiles of a backward's kv heads. */
struct ft_key_tiles {
  int64_t bytes; /* what a key tile walks over: Q and dO of all heads of its group */
  int64_t heads; /* kv heads of all batch entries; of a ragged run of one */
  int64_t tiles; /* of a kv head */
  int64_t slots; /* blocks, or clusters, that the GPU holds at once */
  bool ordered;  /* a tile's adds to dQ wait for the tile before it */
};

/* How many kv heads run together. L2 keeps what few heads load and add to. Where key tiles differ
 * in length, the heads are at least so many that their tiles fill the GPU: with fewer, the longest
 * tiles of the next heads would start late. Where adds have an order, each tile waits for the one
 * before it of its head, so only four tiles of a head count as running. In a ragged run the longest
 * walk of one head may take longer than all else that a multiprocessor does for that head; with two
 * heads that is rare. With ordered adds it takes four, so that few tiles wait for one another. */
int64_t ft_schedule_key_section(const struct ft_request *request, const struct ft_arch *arch,
                                const struct ft_key_tiles *of);

/* What persistent blocks share out in balanced pairs with a remainder. Each batch_head has `tiles`
 * work tiles of `rows` rows. A row i, of 2^pack_bits packed heads, is of query i >> pack_bits. A
 * step is `keys` keys. All fields are 64-bit: structs are compared as bytes. */
struct ft_shares {
  int64_t tiles, heads, blocks; /* of a batch_head; batch_heads; that share them */
  int64_t rows, keys;           /* of a tile; of a step */
  struct ft_visibility visibility;
  int64_t pack_bits;
  int64_t least, most; /* batch_heads that may be the remainder */
};

/* The steps that the busiest block takes when the last `remainder` batch_heads are the remainder,
 * over what it would take if all blocks took the same: 1 is even. */
double ft_shares_unevenness(const struct ft_shares *shares, int64_t remainder);

/* Of some numbers from least to most the one for which that is smallest. Worked out once for a
 * thread's last few shares: 10 to 50 us. */
int64_t ft_shares_remainder(const struct ft_shares *shares);

/* Persistent blocks of a launch, in clusters of `cluster`, of which `resident` blocks fit on the
 * GPU. A cluster takes as many work tiles at once as it has blocks, and no block is without work.
 * remainder: of the balanced form, whose other batch_heads are paired. */
int64_t ft_schedule_blocks(enum ft_schedule schedule, int64_t tiles, int64_t heads,
                           int64_t remainder, int64_t cluster, int64_t resident);

#endif
