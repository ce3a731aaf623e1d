/* stream.h: the steps of all work tiles' walks, one walk behind the other, are divided evenly among
 * the blocks (stream-K). A walk that reaches from one block's share into the next has parts. The C
 * twin of templates/parts/schedule_stream.cu.in.
 * in -> out: steps, blocks -> steps of a share; a walk's place -> the blocks that have its parts.
 */
#ifndef GENERATOR_STREAM_H
#define GENERATOR_STREAM_H

#include <stdint.h>

/* Steps of each block's share. all: of all walks; longest: of the longest walk; with blocks, each
 * at least 1. The share is rounded up to a multiple of the longest walk, unless that makes it more
 * than a sixteenth longer: walks of equal length then have no parts, or few. */
int64_t ft_stream_share(int64_t all, int64_t longest, int64_t blocks);

/* The blocks that have parts of a walk. before: steps of the walks before it; steps: its own;
 * share: ft_stream_share. count 1: the walk is not divided. */
struct ft_stream_parts {
  int64_t first_block, count;
};
struct ft_stream_parts ft_stream_parts_of(int64_t before, int64_t steps, int64_t share);

/* Parts of a block that need room in the workspace: the end of one walk and the beginning of
 * another. Whole walks need none. */
enum { FT_STREAM_PARTS_OF_BLOCK = 2 };

#endif
