/* loaded.h: compiled kernels at work, each time in a child process that loads them anew.
 * in -> out: shared object -> what it says of itself; that and a launch -> its effects on shared
 * memory, or the fault in words. */
#ifndef RUNTIME_EMULATOR_LOADED_H
#define RUNTIME_EMULATOR_LOADED_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/driver.h"
#include "runtime/emulator/grid.h"

enum { FT_ENTRIES_MOST = 5 };

/* A shared object, and its kernels. */
struct ft_loaded {
  int file;
  char path[64]; /* of the file, for other programs */
  bool sees_plain;
  int entry_count;
  struct {
    char name[64];
    int cluster;
  } entries[FT_ENTRIES_MOST];
};

/* file, path: given. CUresult, and what is wrong. */
cu_result ft_loaded_read(struct ft_loaded *loaded, char *message, size_t size);

/* kernel, entry: not given. 0, or -1 with the fault. What the launch writes to tensors outside of
 * the emulated memory is copied to them at its end. */
int ft_loaded_launch(const struct ft_loaded *loaded, int entry,
                     const struct ft_emulated_launch *launch, char *message, size_t size);

#endif
