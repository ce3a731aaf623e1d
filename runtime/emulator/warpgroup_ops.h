/* warpgroup_ops.h: what a warpgroup does together. */
#ifndef RUNTIME_EMULATOR_WARPGROUP_OPS_H
#define RUNTIME_EMULATOR_WARPGROUP_OPS_H

#include "runtime/emulator/block.h"
#include "runtime/emulator/device/machine.h"

/* Carries an op out for all lanes of a warpgroup; names[op] for messages. */
void ft_warpgroup_op_run(enum fe_warpgroup_op op, int warpgroup, int line);
extern const char *const ft_warpgroup_op_names[FE_WARPGROUP_OPS];
void ft_warpgroups_reset(struct ft_block *block);
/* As the block ends: a product under way is a fault. */
void ft_check_products_done(struct ft_block *block);

#endif
