/* access.h: what a kernel reads and writes, by primitives and by plain loads and stores. */
#ifndef RUNTIME_EMULATOR_ACCESS_H
#define RUNTIME_EMULATOR_ACCESS_H

#include <stdint.h>

#include "runtime/emulator/device/machine.h"

/* What the functions of struct fe_machine do. */
uint32_t ft_emulate_shared_address(const void *pointer, int line);
void ft_emulate_shared_read(void *to, uint32_t from, int bytes, int line);
void ft_emulate_shared_write(uint32_t to, const void *from, int bytes, int line);
void ft_emulate_global_read(void *to, const void *from, int bytes, int line);
void ft_emulate_global_write(void *to, const void *from, int bytes, int line);
void ft_emulate_plain(const void *memory, int bytes, enum fe_access access);

#endif
