/* merge.h: the kernel that puts the results of separate forwards together (fatune_merge).
 * in -> out: its config. It is no family of family.c: no request asks for it, nothing is tuned. */
#ifndef GENERATOR_FAMILIES_MERGE_H
#define GENERATOR_FAMILIES_MERGE_H

#include "generator/family.h"

#define FT_MERGE_KNOBS(KNOB)                                                                       \
  KNOB(block_m, (4), 1, 32, "query rows of a block, a warp for each")                              \
  KNOB(block_n, (16), 16, 16, "without meaning: every family has it")
#define FT_MERGE_BUDGET(TEMPLATE, HOST) TEMPLATE(d_pad, "head dim of O")

FT_DECLARE_FAMILY(merge, FT_MERGE_KNOBS, FT_MERGE_BUDGET);

#endif
