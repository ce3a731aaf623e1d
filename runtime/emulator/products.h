/* products.h: the products of a warpgroup that are under way. */
#ifndef RUNTIME_EMULATOR_PRODUCTS_H
#define RUNTIME_EMULATOR_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/wgmma_operand.h"

/* A tile of sums while products that add to it are under way. */
struct ft_sums {
  float *homes[FT_WARPGROUP]; /* where each lane has its registers */
  int registers, under_way;
  int line;     /* of the last product */
  float *sums;  /* [FT_WGMMA_ROWS][2 * registers]; owned */
  int sum_room; /* floats */
};

struct ft_product {
  struct ft_operand a, b;
  bool a_in_registers, accumulate;
  enum fe_wgmma_dtype dtype;
  const uint32_t *a_homes[FT_WARPGROUP];
  uint32_t a_registers[FT_WARPGROUP][4];
  int sums; /* index */
  int line;
  uint32_t group;
};

struct ft_products {
  struct ft_product *queue; /* the oldest first; owned */
  int count, room;
  struct ft_sums *sums; /* owned; those of no product under way are free for others */
  int sum_count, sum_room;
  uint32_t committed; /* groups; those to come are one more */
  int agent;
  bool fenced;      /* no register was touched since wgmma.fence, as far as is seen */
  uint32_t *common; /* clock: what all lanes know; owned */
  uint32_t common_changes;
  bool common_known;
};

#endif
