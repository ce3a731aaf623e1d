/* wgmma.h: the products of a warpgroup that are under way, and their operands in shared memory.
 * in -> out: 128 records, waits -> accumulators, or what is wrong. */
#ifndef RUNTIME_EMULATOR_WGMMA_H
#define RUNTIME_EMULATOR_WGMMA_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/shared_memory.h"

enum { FT_WGMMA_ROWS = 64, FT_WGMMA_DEPTH = 16, FT_WGMMA_COLUMNS_MOST = 256 };
enum { FT_OPERAND_WORDS = 512 }; /* room for what is wrong */

/* An operand by descriptor: rows of 128 bytes with chunks of 16, as TMA lays a tensor's rows out.
 * Along: the depth runs along a row, which are A's rows or B's columns. Across: it runs from row to
 * row, and B's columns along them. */
struct ft_operand {
  char name;                       /* 'A', 'B' */
  uint32_t begin, leading, stride; /* address; bytes: from 64 columns to the next, from 8 rows */
  bool across;
  int rows, chunks;
};

/* NULL, or what is wrong with the descriptor. outer: rows of A, columns of B. */
const char *ft_operand_decode(struct ft_operand *operand, char name, uint64_t descriptor,
                              bool across, int outer, char what[FT_OPERAND_WORDS]);
/* NULL, or what is wrong with reading it. */
const char *ft_operand_read(const struct ft_operand *operand, struct ft_shared_memory *shared,
                            const struct ft_accessor *by, char what[FT_OPERAND_WORDS]);
/* What lies there now: element (row, column) to to[row * row_step + column * column_step]. */
void ft_operand_gather(const struct ft_operand *operand, const struct ft_shared_memory *shared,
                       bool bf16, float *to, int row_step, int column_step);
/* NULL, or in which way it is no tile of a tensor. first: where its first row and column lie in the
 * tensor, as far as known: tensor NULL where it is not. */
const char *ft_operand_tile(const struct ft_operand *operand, const struct ft_shared_memory *shared,
                            const struct ft_emulated_tensor *tensors, int count,
                            struct ft_place *first, char what[FT_OPERAND_WORDS]);

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
  bool a_in_registers, accumulate, bf16;
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

void ft_wgmma_issue(int warpgroup, int line);
void ft_wgmma_wait(int warpgroup, int youngest, int line);
void ft_products_reset(struct ft_products *products);
void ft_products_free(struct ft_products *products);

#endif
