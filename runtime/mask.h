/* mask.h: block-sparse masks, the inside of a fatune_mask.
 * in -> out: bitmap -> index lists of its rows and columns. */
#ifndef RUNTIME_MASK_H
#define RUNTIME_MASK_H

#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "generator/arguments.h"

/* The index lists of a block-sparse mask on the device; the inside of a fatune_mask. */
struct fatune_mask {
  fatune_session *session;
  cu_address memory; /* one allocation, which holds the arrays below; 0: it is the caller's */
  cu_address
      lists; /* struct ft_mask_list [batch][heads][row_blocks], a head's longest list first */
  cu_address blocks; /* int32_t, kept column blocks, ascending within a list */
  /* The same by columns: struct ft_mask_list [batch][heads][col_blocks] in the order of the
   * columns, and their kept row blocks. */
  cu_address column_lists, column_blocks;
  /* int32_t [batch][heads][col_blocks]: the columns of a head, those with most kept blocks first;
   * 0: there is no such order. */
  cu_address column_order;
  /* [col_blocks]: of the kept blocks of a head's columns, most first, the most that any head has in
   * this place. NULL: not known to the host. */
  int32_t *column_counts;
  /* [row_blocks], likewise: of the lists of this place in `lists` the longest of any head. */
  int32_t *row_counts;
  int rows, cols; /* of one block */
  int64_t batch;  /* 1: broadcast */
  int heads;      /* 1: broadcast */
  int64_t seqlen_q, seqlen_k;
  int64_t row_blocks, col_blocks;
  double density; /* -1: not known to the host */
  /* Of a mask that a mask function makes; else NULL and 0. */
  struct ft_visible_mask *visible; /* of visible_mask.c; owned, one allocation */
  int64_t score;
  /* Memory that the caller lent; 0: `memory` is the driver's. */
  cu_address lent;
  size_t lent_bytes;
};

/* FT_E_ARGUMENT with the option's name unless blocks may have so many rows, or columns. */
int ft_mask_check_block(const char *name, int value);

/* Bitmap [batch_heads][row_blocks][col_blocks] -> batch_heads * row_blocks lists, all in host
 * memory. With blocks NULL kept blocks are only counted. Returns the number of kept blocks. */
int64_t ft_mask_lists(const uint8_t *bitmap, int64_t batch_heads, int64_t row_blocks,
                      int64_t col_blocks, struct ft_mask_list *lists, int32_t *blocks);
/* The same by columns: batch_heads * col_blocks lists. */
int64_t ft_mask_columns(const uint8_t *bitmap, int64_t batch_heads, int64_t row_blocks,
                        int64_t col_blocks, struct ft_mask_list *lists, int32_t *blocks);
/* The lists of columns -> their numbers, those with most kept blocks of each batch_head first, and
 * the most that any batch_head keeps in the column of each place. 0, or -1 without memory. */
int ft_mask_order(const struct ft_mask_list *lists, int64_t batch_heads, int64_t col_blocks,
                  int32_t *order, int32_t *counts);

#endif
