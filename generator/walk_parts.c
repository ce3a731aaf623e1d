/* walk_parts.c: which walks of a backward's key tiles are divided up among blocks.
 * in -> out: kept blocks of each column of a mask -> how many key tiles have 64 parts, 32, and so
 * on. */
#include "generator/walk_parts.h"

double ft_steps_of_columns(const struct ft_columns *columns) {
  double kept = 0;
  for (int64_t n = 0; n < columns->columns; n++) kept += columns->counts[n];
  return kept * (double)columns->tiles * columns->steps_of_a_block;
}

/* How many of the columns have walks of more than so many steps. */
static int64_t longer_than(const struct ft_columns *columns, double steps) {
  int64_t first = 0, end = columns->columns;
  while (first < end) {
    const int64_t middle = (first + end) / 2;
    if (columns->counts[middle] * columns->steps_of_a_block > steps)
      first = middle + 1;
    else
      end = middle;
  }
  return first;
}

static struct ft_walk_parts divided(const struct ft_columns *columns, double steps) {
  struct ft_walk_parts result = {.parts = 0};
  int64_t before = 0, parts = 0;
  for (int c = 0; c < FT_WALK_PARTS_CLASSES; c++) {
    const int64_t count = FT_WALK_PARTS_MOST >> c, half = count / 2;
    const int64_t end = longer_than(columns, steps * (double)half) * columns->tiles;
    result.ends[c] = (int32_t)end;
    parts += (end - before) * count;
    before = end;
  }
  result.parts = parts < INT32_MAX ? (int32_t)parts : INT32_MAX;
  return result;
}

struct ft_walk_parts ft_walk_parts_of(const struct ft_columns *columns, double steps,
                                      int64_t most) {
  struct ft_walk_parts result = divided(columns, steps);
  while (result.parts > most) result = divided(columns, steps *= 2);
  return result;
}
