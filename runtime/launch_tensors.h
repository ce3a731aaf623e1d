/* launch_tensors.h: the memory of a run, as the emulator is to know it.
 * in -> out: struct ft_launch -> what its next step may use. */
#ifndef RUNTIME_LAUNCH_TENSORS_H
#define RUNTIME_LAUNCH_TENSORS_H

#include "runtime/launch_parts.h"

/* Tells the emulator which memory the next launch, a step of it, may use. */
void ft_launch_describe(const struct ft_launch *launch, enum ft_step step);

#endif
