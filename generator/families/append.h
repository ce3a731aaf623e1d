/* append.h: the kernel that writes new rows of K and V behind those there are (fatune_append).
 * in -> out: its config. It is no family of family.c: no request asks for it, nothing is tuned. */
#ifndef GENERATOR_FAMILIES_APPEND_H
#define GENERATOR_FAMILIES_APPEND_H

#include "generator/family.h"

#define FT_APPEND_KNOBS(KNOB)                                                                      \
  KNOB(block_m, (8), 1, 32, "warps of a block")                                                    \
  KNOB(block_n, (16), 16, 16, "without meaning: every family has it")
#define FT_APPEND_BUDGET(TEMPLATE, HOST)                                                           \
  TEMPLATE(k_chunks, "16-byte chunks of a row of K")                                               \
  TEMPLATE(v_chunks, "of V")                                                                       \
  TEMPLATE(lanes, "threads of a row: a power of two")                                              \
  HOST(rows, "of a block")

FT_DECLARE_FAMILY(append, FT_APPEND_KNOBS, FT_APPEND_BUDGET);

#endif
