/* walk_parts.h: which walks of a backward's key tiles are divided up among blocks, under a block
 * mask some of whose columns have many more kept blocks than others. The C twin of
 * templates/parts/walk_parts.cu.in.
 * in -> out: kept blocks of each column of a mask -> how many key tiles have 64 parts, 32, and so
 * on. */
#ifndef GENERATOR_WALK_PARTS_H
#define GENERATOR_WALK_PARTS_H

#include <stdint.h>

/* Parts are 64, 32, 16, 8, 4 or 2. */
enum { FT_WALK_PARTS_CLASSES = 6, FT_WALK_PARTS_MOST = 1 << FT_WALK_PARTS_CLASSES };

/* The columns of mask blocks of a head. */
struct ft_columns {
  const int32_t *counts; /* kept blocks, most first */
  int64_t columns;
  int64_t tiles;           /* key tiles of a column */
  double steps_of_a_block; /* of a key tile's walk, over all heads of its group */
};

struct ft_walk_parts {
  int32_t ends[FT_WALK_PARTS_CLASSES]; /* how many tiles have 64 parts; 64 or 32; and so on */
  int32_t parts;                       /* of all these */
};

/* Steps of the walks of a head. */
double ft_steps_of_columns(const struct ft_columns *columns);

/* A walk has so many parts that none has more than `steps` steps, or 64, but all walks have at most
 * `most` parts together: `steps` is doubled until they do. */
struct ft_walk_parts ft_walk_parts_of(const struct ft_columns *columns, double steps, int64_t most);

#endif
