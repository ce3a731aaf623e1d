/* stream.c: the steps of all work tiles' walks, divided evenly among the blocks (stream-K). */
#include "generator/stream.h"

int64_t ft_stream_share(int64_t all, int64_t longest, int64_t blocks) {
  enum { ROOM = 16 }; /* ROOM_OF_SHARE */
  const int64_t even = (all + blocks - 1) / blocks;
  const int64_t whole = (even + longest - 1) / longest * longest;
  return whole - even <= even / ROOM ? whole : even;
}

struct ft_stream_parts ft_stream_parts_of(int64_t before, int64_t steps, int64_t share) {
  const int64_t first = before / share;
  return (struct ft_stream_parts){first, (before + steps - 1) / share - first + 1};
}
