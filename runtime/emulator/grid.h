/* grid.h: what is launched: a kernel, how often, with what. */
#ifndef RUNTIME_EMULATOR_GRID_H
#define RUNTIME_EMULATOR_GRID_H

#include <stdint.h>

#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/tensor.h"

struct ft_emulated_launch {
  const struct fe_kernel *kernel;
  const struct fe_entry *entry; /* of the kernel */
  unsigned grid, threads;       /* one-dimensional; whole clusters */
  int cluster;                  /* blocks of one */
  unsigned shared_bytes;
  const void *argument;
  const struct ft_emulated_tensor *tensors;
  int tensor_count;
  uint64_t steps_most; /* basic blocks and barriers of one block of threads */
};

#endif
