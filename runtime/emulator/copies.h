/* copies.h: asynchronous copies (cp.async). */
#ifndef RUNTIME_EMULATOR_COPIES_H
#define RUNTIME_EMULATOR_COPIES_H

#include <stdint.h>

#include "runtime/emulator/block.h"

void ft_copy_async(uint32_t to, const void *from, int bytes, int valid, int line);
void ft_copy_commit(int line);
void ft_copy_wait(int youngest, int line);
void ft_copies_forget(struct ft_thread *thread);

#endif
