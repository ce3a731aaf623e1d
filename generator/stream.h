/* stream.h: equal shares of the steps of all walks (stream-K), and the parts of walks that they
 * make. The C twin of templates/parts/schedule_stream.cu.in.
 * in -> out: steps of all walks and of the longest, blocks -> a share; a walk -> who has its parts.
 */
#ifndef GENERATOR_STREAM_H
#define GENERATOR_STREAM_H

#include <stdint.h>

/* Steps of each block's share. Where that makes it longer by a sixteenth at most, it is a multiple
 * of the longest walk: walks that are alike then have no parts, or as few as can be. all, longest,
 * blocks: at least 1. */
int64_t ft_stream_share(int64_t all, int64_t longest, int64_t blocks);

/* The blocks that have parts of the walk of so many steps which so many steps come before. One: the
 * walk is not divided. */
struct ft_stream_parts {
  int64_t first_block, count;
};
struct ft_stream_parts ft_stream_parts_of(int64_t before, int64_t steps, int64_t share);

/* Parts that the workspace has room for: a block has at most one that begins a walk and one that
 * does not, besides whole walks. */
enum { FT_STREAM_PARTS_OF_BLOCK = 2 };

#endif
