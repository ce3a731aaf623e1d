/* tiles_in_order.h: when the last of a backward's blocks ends, which start in the order of their
 * key tiles, as blocks before them end.
 * in -> out: request + GPU + tiles -> steps from the first block's start to the last one's end.
 *
 * The order is that of templates/parts/key_tile.cu.in. What only a run knows is made up: lengths of
 * a ragged run, and which blocks a mask keeps. */
#ifndef GENERATOR_TILES_IN_ORDER_H
#define GENERATOR_TILES_IN_ORDER_H

#include "generator/model/walk.h"

struct ft_blocks {
  struct ft_tiling tiling; /* not of packed heads */
  int cluster;             /* blocks that have a key tile together */
  int part_steps;          /* block masks: walks of more steps are divided; 0: none is */
};

double ft_steps_in_order(const struct ft_request *request, const struct ft_arch *arch,
                         const struct ft_blocks *blocks);

#endif
