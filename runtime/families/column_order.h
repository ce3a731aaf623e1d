/* column_order.h: under a block mask, the order in which a backward's key tiles start, and which of
 * their walks are divided up among blocks.
 * in -> out: mask + tiles of a run -> struct ft_arg_column_order, its part of the workspace. */
#ifndef RUNTIME_FAMILIES_COLUMN_ORDER_H
#define RUNTIME_FAMILIES_COLUMN_ORDER_H

#include "runtime/launch_checks.h"
#include "runtime/launch_family.h"

/* part_steps: walks of more steps may be divided; 0: none is. slots: key tiles that the GPU works
 * on at once. */
struct ft_dividing {
  int part_steps;
  int64_t slots;
};

/* Parts that a run has at most, over all heads. No smaller run has more. */
int64_t ft_walk_parts_most(const struct ft_dividing *dividing, const struct ft_run *run,
                           int64_t q_tiles, int64_t k_tiles);

/* Fills in all but the address of the sums. mask: NULL, or that of the run, checked. most: as
 * above. */
void ft_column_order_read(struct ft_arg_column_order *order, const struct ft_launch_plan *plan,
                          const struct ft_dividing *dividing, const struct ft_run *run,
                          const struct fatune_mask *mask, int64_t most);

/* Key tiles of a head that are divided, and how many tiles it has where each part counts as one. */
int64_t ft_divided_tiles(const struct ft_arg_column_order *order);
int64_t ft_places_of_head(const struct ft_arg_column_order *order, int64_t k_tiles);

#endif
