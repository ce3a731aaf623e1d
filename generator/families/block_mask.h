/* block_mask.h: the kernels that make a block mask from a mask function (fatune_mask_update).
 * in -> out: their config. They are no family of family.c: no request asks for them, nothing is
 * tuned. */
#ifndef GENERATOR_FAMILIES_BLOCK_MASK_H
#define GENERATOR_FAMILIES_BLOCK_MASK_H

#include "generator/family.h"

#define FT_BLOCK_MASK_KNOBS(KNOB)                                                                  \
  KNOB(block_m, (16), 16, 16, "without meaning: every family has it")                              \
  KNOB(block_n, (16), 16, 16, "likewise")
#define FT_BLOCK_MASK_BUDGET(TEMPLATE, HOST) TEMPLATE(warps, "of a block")

FT_DECLARE_FAMILY(block_mask, FT_BLOCK_MASK_KNOBS, FT_BLOCK_MASK_BUDGET);

/* The request whose text the kernels of a score function and of blocks of this size have. */
struct ft_request ft_block_mask_request(int64_t score, int mask_rows, int mask_cols);

#endif
