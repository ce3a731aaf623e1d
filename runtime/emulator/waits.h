/* waits.h: threads that wait for others: for their warp, their warpgroup, their block. */
#ifndef RUNTIME_EMULATOR_WAITS_H
#define RUNTIME_EMULATOR_WAITS_H

#include "runtime/emulator/device/machine.h"

/* Returns when those waited for have come. */
void ft_arrive_at_warp_op(enum fe_warp_op op, void *record, int line);
void ft_arrive_at_warpgroup_op(enum fe_warpgroup_op op, void *record, int line);
void ft_arrive_at_barrier(int line);

#endif
