/* pages.h: memory that a process shares with the children it forks.
 * in -> out: bytes -> whole pages. */
#ifndef RUNTIME_EMULATOR_PAGES_H
#define RUNTIME_EMULATOR_PAGES_H

#include <stddef.h>

/* All zero; NULL when there is none. */
void *ft_pages_allocate(size_t bytes);
void ft_pages_release(void *pages, size_t bytes); /* NULL is fine */

/* Bytes of whole pages that hold so many. */
size_t ft_pages_round(size_t bytes);

#endif
