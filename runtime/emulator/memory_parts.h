/* memory_parts.h: what memory_check.c asks of the registry in memory.c.
 * in -> out: address -> the allocation that holds it, or the one nearest to it. */
#ifndef RUNTIME_EMULATOR_MEMORY_PARTS_H
#define RUNTIME_EMULATOR_MEMORY_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ft_allocation {
  uint64_t address;
  size_t bytes;
  unsigned char *written; /* one flag for each byte; lives as long as the allocation */
};

bool ft_memory_find(uint64_t address, struct ft_allocation *found);
/* By distance from the address to its first or last byte; false when there is none at all. */
bool ft_memory_nearest(uint64_t address, struct ft_allocation *found);

/* Another number after every allocation and release: what was found before may be gone. */
uint64_t ft_memory_generation(void);

#endif
