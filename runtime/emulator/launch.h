/* launch.h: one launch on the emulated machine.
 * in -> out: compiled kernel, grid, argument, memory -> the kernel's effects, or a fault with its
 * place. In a process of its own: one launch runs at a time in a process. */
#ifndef RUNTIME_EMULATOR_LAUNCH_H
#define RUNTIME_EMULATOR_LAUNCH_H

#include <stddef.h>

#include "runtime/emulator/grid.h"

/* 0, or -1 with the fault in message: what, where (line of the emitted text and of the template,
 * block, warp, lane). */
int ft_emulated_launch_run(const struct ft_emulated_launch *launch, char *message, size_t size);

#endif
