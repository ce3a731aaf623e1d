/* deadlock.h: where threads are, in words; who waits for whom when nobody can run. */
#ifndef RUNTIME_EMULATOR_DEADLOCK_H
#define RUNTIME_EMULATOR_DEADLOCK_H

#include "runtime/emulator/block.h"

/* Nobody can run and not all have ended. */
void ft_tell_deadlock(const struct ft_cluster *cluster);
/* "is at ldmatrix in line 12 (parts/mma_tile.cu.in:3)", "has ended" */
const char *ft_thread_text(const struct ft_thread *thread, char text[FT_THREAD_WORDS]);

#endif
