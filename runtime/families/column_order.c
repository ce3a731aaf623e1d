/* column_order.c: under a block mask, the order in which a backward's key tiles start, and which of
 * their walks are divided up among blocks.
 * in -> out: mask + tiles of a run -> struct ft_arg_column_order, its part of the workspace. */
#include "runtime/families/column_order.h"

#include <string.h>

#include "generator/walk_parts.h"
#include "generator/schedule.h"
#include "runtime/mask.h"

/* A part has more than half of part_steps steps. */
int64_t ft_walk_parts_most(const struct ft_dividing *dividing, const struct ft_run *run,
                           int64_t q_tiles, int64_t k_tiles) {
  enum { PARTS_OF_A_SLOT = 2 };
  if (dividing->part_steps == 0) return 0;
  const int64_t by_slots = PARTS_OF_A_SLOT * dividing->slots;
  int64_t by_steps;
  if (__builtin_mul_overflow(q_tiles, 2 * k_tiles, &by_steps) ||
      __builtin_mul_overflow(by_steps, run->batch * run->heads_q, &by_steps))
    return by_slots;
  by_steps /= dividing->part_steps;
  return by_slots < by_steps ? by_slots : by_steps;
}

/* No walk takes longer than a share of what a block has to do in all. */
static double steps_of_a_part(const struct ft_dividing *dividing, const struct ft_columns *columns,
                              int64_t heads) {
  enum { WALKS_OF_A_SLOT = 4 };
  const double of_a_slot = ft_steps_of_columns(columns) * (double)heads / (double)dividing->slots;
  const double steps = of_a_slot / WALKS_OF_A_SLOT;
  return steps > dividing->part_steps ? steps : dividing->part_steps;
}

void ft_column_order_read(struct ft_arg_column_order *order, const struct ft_launch_plan *plan,
                          const struct ft_dividing *dividing, const struct ft_run *run,
                          const struct fatune_mask *mask, int64_t most) {
  memset(order, 0, sizeof *order);
  /* Where visibility differs between queries (causal, window), how many blocks of a column are kept
   * says little about how long its walk is. */
  if (!mask || ft_visibility_varies(plan->request)) return;
  order->columns = mask->column_order;
  if (most == 0 || !mask->column_counts) return;
  const int64_t heads = run->batch * run->heads_kv, group = run->heads_q / run->heads_kv;
  const struct ft_columns columns = {
      .counts = mask->column_counts,
      .columns = mask->col_blocks,
      .tiles = mask->cols / ft_config_block_n(plan->config),
      .steps_of_a_block = (double)mask->rows / ft_config_block_m(plan->config) * (double)group};
  const struct ft_walk_parts parts =
      ft_walk_parts_of(&columns, steps_of_a_part(dividing, &columns, heads), most / heads);
  static_assert(sizeof order->ends == sizeof parts.ends, "as many classes");
  memcpy(order->ends, parts.ends, sizeof parts.ends);
  order->parts = parts.parts;
}

int64_t ft_divided_tiles(const struct ft_arg_column_order *order) {
  return order->ends[FT_WALK_PARTS_CLASSES - 1];
}

int64_t ft_places_of_head(const struct ft_arg_column_order *order, int64_t k_tiles) {
  return k_tiles - ft_divided_tiles(order) + order->parts;
}
