/* mbarriers.h: mbarrier objects, and the TMA loads they wait for. */
#ifndef RUNTIME_EMULATOR_MBARRIERS_H
#define RUNTIME_EMULATOR_MBARRIERS_H

#include <stdint.h>

#include "runtime/emulator/block.h"
#include "runtime/emulator/device/machine.h"

void ft_mbarrier_init(uint32_t address, int arrivals, int line);
void ft_mbarrier_init_fence(int line);
void ft_mbarrier_arrive(uint32_t address, uint32_t bytes, int line);
void ft_mbarrier_arrive_at(uint32_t address, unsigned rank, int line);
int ft_mbarrier_test(uint32_t address, unsigned parity, int line);
void ft_mbarrier_wait(uint32_t address, unsigned parity, int line);
void ft_tma_load(uint32_t to, const void *map, uint32_t mbarrier, const struct fe_place *at,
                 int line);
void ft_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t address, int line);
void ft_tma_load_multicast(uint32_t to, const void *map, uint32_t mbarrier,
                           const struct fe_place *at, unsigned blocks, int line);
void ft_copy_to_block(uint32_t to, uint32_t from, uint32_t bytes, uint32_t address, unsigned rank,
                      int line);
void ft_async_proxy_fence(int line);
void ft_mbarriers_reset(struct ft_block *block);
void ft_mbarriers_free(struct ft_block *block);
/* As the block ends: a load that has not landed is a fault. */
void ft_check_loads_landed(struct ft_block *block);

#endif
