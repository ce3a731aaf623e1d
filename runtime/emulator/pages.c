/* pages.c: memory that a process shares with the children it forks.
 * in -> out: bytes -> whole pages. */
#include "runtime/emulator/pages.h"

#include <sys/mman.h>
#include <unistd.h>

size_t ft_pages_round(size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

void *ft_pages_allocate(size_t bytes) {
  void *const pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? NULL : pages;
}

void ft_pages_release(void *pages, size_t bytes) {
  if (pages) munmap(pages, bytes);
}
