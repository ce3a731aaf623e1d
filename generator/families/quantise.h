/* quantise.h: the kernels that turn a tensor into e4m3 with descales (fatune_quantise).
 * in -> out: their config. They are no family of family.c: no request asks for them, nothing is
 * tuned. */
#ifndef GENERATOR_FAMILIES_QUANTISE_H
#define GENERATOR_FAMILIES_QUANTISE_H

#include "generator/family.h"

/* Of its request head_dim_v is the columns of a row. head_dim is twice as many where two rows lie
 * side by side as one, of blocks of rotated rows. */
#define FT_QUANTISE_KNOBS(KNOB)                                                                    \
  KNOB(block_m, (8), 1, 32, "warps of a block")                                                    \
  KNOB(block_n, (16), 16, 16, "without meaning: every family has it")
#define FT_QUANTISE_BUDGET(TEMPLATE, HOST)                                                         \
  HOST(rows, "of a task")                                                                          \
  HOST(finders, "blocks of a multiprocessor that find the descales of heads")                      \
  TEMPLATE(blocks, "of a multiprocessor that write bytes")                                         \
  TEMPLATE(stages, "tasks in the ring of each of these")                                           \
  TEMPLATE(head_warps, "of a block of a cluster that has a head together")                         \
  TEMPLATE(head_stages, "tasks in the ring of such a block; 0: there are no such clusters")        \
  TEMPLATE(head_smem_bytes, "of such a block")

FT_DECLARE_FAMILY(quantise, FT_QUANTISE_KNOBS, FT_QUANTISE_BUDGET);

/* How many blocks are in a cluster that quantises a head, 1 to 16; 0 where two kernels do it. */
int ft_quantise_cluster(const struct ft_quantise_budget *budget, int64_t rows, int64_t heads,
                        bool rotated, const struct ft_arch *arch);

#endif
