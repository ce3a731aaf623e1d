/* memory.c: the registry of the emulated GPU's memory.
 * in -> out: sizes and addresses -> allocations, sorted by address, with a flag for each byte that
 * was written. A process has few of them: a vector under one lock. Children of a fork share the
 * bytes and the flags, and each has a vector of its own. */
#include "runtime/emulator/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/emulator/pages.h"

/* AddressSanitizer must be told where an allocation ends. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define forbid(from, bytes) __asan_poison_memory_region(from, bytes)
#define permit(from, bytes) __asan_unpoison_memory_region(from, bytes)
#else
#define forbid(from, bytes) ((void)(from), (void)(bytes))
#define permit(from, bytes) ((void)(from), (void)(bytes))
#endif

enum { ALIGNMENT = 256, NOISE = 0xCB };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ft_allocation *allocations; /* sorted by address; none overlap */
static size_t allocation_count, allocation_room;
static _Atomic uint64_t generation;

uint64_t ft_memory_generation(void) {
  return generation;
}

/* How many allocations begin at or below the address; the last of them may hold it. */
static size_t begun(uint64_t address) {
  size_t low = 0, high = allocation_count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (allocations[middle].address <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static struct ft_allocation *holder(uint64_t address) {
  const size_t count = begun(address);
  if (count == 0) return NULL;
  struct ft_allocation *last = &allocations[count - 1];
  return address - last->address < last->bytes ? last : NULL;
}

static bool make_room(void) {
  if (allocation_count < allocation_room) return true;
  const size_t room = allocation_room ? 2 * allocation_room : 16;
  struct ft_allocation *more = realloc(allocations, room * sizeof *more);
  if (!more) return false;
  allocations = more;
  allocation_room = room;
  return true;
}

static bool insert(struct ft_allocation made) {
  pthread_mutex_lock(&lock);
  const bool room = make_room();
  if (room) {
    const size_t at = begun(made.address);
    memmove(&allocations[at + 1], &allocations[at], (allocation_count - at) * sizeof made);
    allocations[at] = made;
    allocation_count += 1;
    generation += 1;
  }
  pthread_mutex_unlock(&lock);
  return room;
}

/* An allocation has pages of its own, which kernels in child processes share, and a page on either
 * side that nobody may touch. It begins a little behind a page: no more aligned than is promised.
 */
static size_t mapped_bytes(size_t bytes) {
  return ft_pages_round(ALIGNMENT + bytes) + 2 * ft_pages_round(1);
}

static unsigned char *map_memory(size_t bytes) {
  const size_t all = mapped_bytes(bytes), page = ft_pages_round(1);
  if (bytes == 0 || all < bytes) return NULL;
  unsigned char *const pages = ft_pages_allocate(all);
  if (!pages) return NULL;
  if (mprotect(pages, page, PROT_NONE) != 0 || mprotect(pages + all - page, page, PROT_NONE) != 0) {
    ft_pages_release(pages, all);
    return NULL;
  }
  unsigned char *const memory = pages + page + ALIGNMENT;
  forbid(pages + page, ALIGNMENT);
  forbid(memory + bytes, all - 2 * page - ALIGNMENT - bytes);
  return memory;
}

static void unmap_memory(unsigned char *memory, size_t bytes) {
  const size_t all = mapped_bytes(bytes), page = ft_pages_round(1);
  permit(memory - ALIGNMENT, all - 2 * page);
  ft_pages_release(memory - ALIGNMENT - page, all);
}

uint64_t ft_memory_allocate(size_t bytes) {
  unsigned char *const memory = map_memory(bytes);
  if (!memory) return 0;
  memset(memory, NOISE, bytes);
  const struct ft_allocation made = {(uint64_t)(uintptr_t)memory, bytes, ft_pages_allocate(bytes)};
  if (made.written && insert(made)) return made.address;
  ft_pages_release(made.written, bytes);
  unmap_memory(memory, bytes);
  return 0;
}

bool ft_memory_free(uint64_t address) {
  struct ft_allocation gone = {0};
  pthread_mutex_lock(&lock);
  struct ft_allocation *found = holder(address);
  if (found && found->address == address) {
    gone = *found;
    allocation_count -= 1;
    const size_t after = allocation_count - (size_t)(found - allocations);
    memmove(found, found + 1, after * sizeof *found);
    generation += 1;
  }
  if (allocation_count == 0) { /* so that nothing is left when a process has freed all it had */
    free(allocations);
    allocations = NULL;
    allocation_room = 0;
  }
  pthread_mutex_unlock(&lock);
  if (gone.address == 0) return false;
  ft_pages_release(gone.written, gone.bytes);
  unmap_memory((unsigned char *)(uintptr_t)gone.address, gone.bytes);
  return true;
}

bool ft_memory_find(uint64_t address, struct ft_allocation *found) {
  pthread_mutex_lock(&lock);
  const struct ft_allocation *held = holder(address);
  if (held) *found = *held;
  pthread_mutex_unlock(&lock);
  return held != NULL;
}

bool ft_memory_nearest(uint64_t address, struct ft_allocation *found) {
  pthread_mutex_lock(&lock);
  const bool any = allocation_count > 0;
  if (any) {
    size_t at = begun(address);
    if (at > 0) {
      const struct ft_allocation *below = &allocations[at - 1];
      const uint64_t end = below->address + below->bytes;
      if (at == allocation_count || address < end ||
          address - end < allocations[at].address - address) {
        at -= 1;
      }
    }
    *found = allocations[at];
  }
  pthread_mutex_unlock(&lock);
  return any;
}

static bool fits(const struct ft_allocation *allocation, uint64_t address, size_t bytes) {
  return allocation && bytes <= allocation->bytes - (address - allocation->address);
}

bool ft_memory_holds(uint64_t address, size_t bytes) {
  pthread_mutex_lock(&lock);
  const bool held = fits(holder(address), address, bytes);
  pthread_mutex_unlock(&lock);
  return held;
}

void ft_memory_written(uint64_t address, size_t bytes) {
  pthread_mutex_lock(&lock);
  const struct ft_allocation *held = holder(address);
  if (fits(held, address, bytes)) memset(held->written + (address - held->address), 1, bytes);
  pthread_mutex_unlock(&lock);
}

void ft_memory_lock(void) {
  pthread_mutex_lock(&lock);
}

void ft_memory_unlock(void) {
  pthread_mutex_unlock(&lock);
}
