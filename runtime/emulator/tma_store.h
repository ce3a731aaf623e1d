/* tma_store.h: TMA stores, and additions to global memory. */
#ifndef RUNTIME_EMULATOR_TMA_STORE_H
#define RUNTIME_EMULATOR_TMA_STORE_H

#include <stdint.h>

#include "runtime/emulator/block.h"
#include "runtime/emulator/device/machine.h"

void ft_tma_store(const void *map, uint32_t from, const struct fe_place *at, int line);
void ft_bulk_add(void *to, uint32_t from, uint32_t bytes, int line);
void ft_tma_store_commit(int line);
void ft_tma_store_wait(int youngest, int line);
/* What is released may come before nothing that is still under way. */
void ft_stores_release(int line);
void ft_stores_end(struct ft_thread *thread); /* as the thread ends */
void ft_stores_free(struct ft_thread *thread);

#endif
