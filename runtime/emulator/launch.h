/* launch.h: one launch on the emulated machine.
 * in -> out: compiled kernel, grid, argument, memory -> the kernel's effects, or a fault with its
 * place. One launch runs at a time in a process. */
#ifndef RUNTIME_EMULATOR_LAUNCH_H
#define RUNTIME_EMULATOR_LAUNCH_H

#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/emulator.h"
#include "runtime/emulator/memory.h"

struct ft_emulated_launch {
  const struct fe_kernel *kernel;
  const struct fe_entry *entry; /* of the kernel */
  const char *object_file;      /* of the kernel's code, for addr2line; NULL: unknown */
  unsigned grid, threads;       /* one-dimensional; whole clusters of the kernel's */
  unsigned shared_bytes;
  const void *argument;
  const struct ft_emulated_tensor *tensors;
  int tensor_count;
  uint64_t steps_most; /* basic blocks and barriers of one block of threads */
};

/* 0, or -1 with the fault in message: what, where (line of the emitted text and of the template,
 * block, warp, lane). */
int ft_emulated_launch_run(const struct ft_emulated_launch *launch, char *message, size_t size);

#endif
