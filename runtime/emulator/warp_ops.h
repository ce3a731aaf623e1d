/* warp_ops.h: what a warp does together. */
#ifndef RUNTIME_EMULATOR_WARP_OPS_H
#define RUNTIME_EMULATOR_WARP_OPS_H

#include "runtime/emulator/block.h"
#include "runtime/emulator/device/machine.h"

/* Carries an op out for all lanes of a warp; names[op] for messages. */
void ft_warp_op_run(enum fe_warp_op op, struct ft_warp *warp, int line);
extern const char *const ft_warp_op_names[FE_WARP_OPS];

#endif
