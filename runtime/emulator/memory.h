/* memory.h: the registry of the emulated GPU's global memory.
 * in -> out: sizes and addresses -> allocations, with which of their bytes have been written.
 * Thread-safe. A child of a fork shares the bytes and what has been written. */
#ifndef RUNTIME_EMULATOR_MEMORY_H
#define RUNTIME_EMULATOR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 256-byte aligned, filled with noise, nothing of it written; 0 when there is no memory. */
uint64_t ft_memory_allocate(size_t bytes);
/* false when the address is no allocation. */
bool ft_memory_free(uint64_t address);
/* Whether the bytes lie in one allocation. */
bool ft_memory_holds(uint64_t address, size_t bytes);
/* Bytes written by a copy or a fill from the host. */
void ft_memory_written(uint64_t address, size_t bytes);

struct ft_allocation {
  uint64_t address;
  size_t bytes;
  unsigned char *written; /* one flag for each byte; lives as long as the allocation */
};

bool ft_memory_find(uint64_t address, struct ft_allocation *found);
/* By distance from the address to its first or last byte; false when there is none at all. */
bool ft_memory_nearest(uint64_t address, struct ft_allocation *found);

/* Held over a fork, so that the registry is whole and free in the child. */
void ft_memory_lock(void);
void ft_memory_unlock(void);

/* Another number after every allocation and release: what was found before may be gone. */
uint64_t ft_memory_generation(void);

#endif
