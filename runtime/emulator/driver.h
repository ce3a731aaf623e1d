/* driver.h: a GPU emulated on the CPU, as a driver like another.
 * in -> out: struct ft_arch -> struct ft_driver whose functions emulate. Memory of the emulated GPU
 * is memory of the process. Everything is done when the call returns: streams and events exist, but
 * there is nothing to wait for and no time to tell. A fault of a kernel is the error of its launch,
 * with what happened and where. */
#ifndef RUNTIME_EMULATOR_DRIVER_H
#define RUNTIME_EMULATOR_DRIVER_H

#include "generator/arch.h"
#include "runtime/driver.h"

/* Fills the table; *ordinal is the emulated GPU with arch's name and limits. Nothing to close. */
int ft_emulator_open(struct ft_driver *driver, const struct ft_arch *arch, int *ordinal);

#endif
