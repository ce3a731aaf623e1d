/* access.c: what a kernel reads and writes, by primitives and by plain loads and stores.
 * in -> out: address, size -> checked against shared memory and the tensors, then done. */
#include "runtime/emulator/access.h"

#include <string.h>

#include "runtime/emulator/block.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/fiber.h"
#include "runtime/emulator/grid.h"
#include "runtime/emulator/memory_check.h"
#include "runtime/emulator/shared_memory.h"

uint32_t ft_emulate_shared_address(const void *pointer, int line) {
  const struct ft_block *const block = ft_block_now;
  const ptrdiff_t offset = (const unsigned char *)pointer - block->shared.bytes;
  if (offset < 0 || offset > (ptrdiff_t)block->shared.size)
    ft_fault(line, "takes the shared address of what is not in shared memory");
  return FE_SHARED_BASE + (uint32_t)offset;
}

void ft_emulate_shared_read(void *to, uint32_t from, int bytes, int line) {
  struct ft_block *const block = ft_block_now;
  char what[256];
  if (ft_shared_read(&block->shared, block->running->number, from, bytes, line, what))
    ft_fault(line, "%s", what);
  memcpy(to, ft_shared_at(&block->shared, from), (size_t)bytes);
}

void ft_emulate_shared_write(uint32_t to, const void *from, int bytes, int line) {
  struct ft_block *const block = ft_block_now;
  char what[256];
  if (ft_shared_write(&block->shared, block->running->number, to, bytes, line, what))
    ft_fault(line, "%s", what);
  memcpy(ft_shared_at(&block->shared, to), from, (size_t)bytes);
}

static void check_global(const void *address, int bytes, enum fe_access access, int line) {
  const struct ft_emulated_launch *const launch = ft_block_now->launch;
  char what[512];
  if (!ft_memory_check(launch->tensors, launch->tensor_count, (uintptr_t)address, bytes, access,
                       what, sizeof what))
    ft_fault(line, "%s", what);
}

void ft_emulate_global_read(void *to, const void *from, int bytes, int line) {
  check_global(from, bytes, FE_READ, line);
  memcpy(to, from, (size_t)bytes);
}

void ft_emulate_global_write(void *to, const void *from, int bytes, int line) {
  check_global(to, bytes, FE_WRITE, line);
  memcpy(to, from, (size_t)bytes);
}

/* ---- plain loads and stores ---- */

static bool lies_in(const unsigned char *address, const void *begin, size_t bytes) {
  return (size_t)(address - (const unsigned char *)begin) < bytes;
}

static void access_shared(uint32_t offset, int bytes, enum fe_access access) {
  struct ft_block *const block = ft_block_now;
  const int thread = block->running->number;
  char what[256];
  const uint32_t address = FE_SHARED_BASE + offset;
  const char *wrong = NULL;
  switch (access) {
  case FE_READ: wrong = ft_shared_read(&block->shared, thread, address, bytes, 0, what); break;
  case FE_WRITE: wrong = ft_shared_write(&block->shared, thread, address, bytes, 0, what); break;
  case FE_ATOMIC: wrong = ft_shared_update(&block->shared, thread, address, bytes, 0, what); break;
  }
  if (wrong) ft_fault(0, "%s", what);
}

/* The kernel's own stack, constants and variables, its argument and this machine are no device
 * memory. */
static void access_piece(const unsigned char *address, int bytes, enum fe_access access) {
  struct ft_block *const block = ft_block_now;
  const struct fe_kernel *const kernel = block->launch->kernel;
  if (lies_in(address, kernel->shared, FE_SHARED_MOST)) {
    access_shared((uint32_t)(address - kernel->shared), bytes, access);
    return;
  }
  if (address >= kernel->image_begin && address < kernel->image_end) return;
  if (lies_in(address, &block->machine, sizeof block->machine)) return;
  if (lies_in(address, block->launch->argument, (size_t)block->launch->entry->argument_bytes))
    return;
  check_global(address, bytes, access, 0);
}

/* What the hooks pass on of the stack is a word that a register must not hold when it is read. */
_Noreturn static void fault_of_register(const unsigned char *address) {
  uint32_t word;
  memcpy(&word, address, sizeof word);
  if (word == FE_UNDER_WAY)
    ft_fault(0, "reads an accumulator of a wgmma that is under way: no wgmma.wait_group orders it");
  ft_fault(0, "reads a variable that was never written");
}

void ft_emulate_plain(const void *memory, int bytes, enum fe_access access) {
  const unsigned char *address = memory;
  const struct ft_fiber *const fiber = &ft_block_now->running->fiber;
  if (lies_in(address, fiber->stack, fiber->stack_bytes)) fault_of_register(address);
  while (bytes > 0) { /* a struct is read in one go: by its words */
    int piece = bytes < 16 ? bytes : 16;
    while ((piece & (piece - 1)) != 0) piece &= piece - 1;
    access_piece(address, piece, access);
    address += piece;
    bytes -= piece;
  }
}
