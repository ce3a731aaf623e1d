/* shared_memory.h: the shared memory of one block, and what is known of its every two bytes: who
 * wrote them, who read them since, whether a copy is still on its way, which global bytes they are.
 * in -> out: accesses and barriers -> the first thing that is wrong with them, in words.
 *
 * Races are found by vector clocks (Mattern 1989), as in FastTrack (Flanagan, Freund, PLDI 2009,
 * doi 10.1145/1542476.1542490): clock[a][b] is the latest time of thread b that a is ordered
 * behind. An access is in order when the time of each earlier access that it conflicts with is at
 * most that. Barriers and __syncwarp order; shuffles, votes and products do not. */
#ifndef RUNTIME_EMULATOR_SHARED_MEMORY_H
#define RUNTIME_EMULATOR_SHARED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FT_GRANULE = 2 }; /* bytes; the smallest element */

struct ft_granule {
  uint32_t writer;       /* stamp of the last write; 0: never written */
  uint16_t written_line; /* where it was done */
  uint16_t read_line;    /* of the last read since */
  bool pending;          /* a copy is on its way here */
};

struct ft_shared_memory {
  unsigned char *bytes; /* the kernel's own array */
  uint32_t size;
  int threads, warps;
  uint32_t *clocks;            /* [threads][threads] */
  struct ft_granule *granules; /* [size / FT_GRANULE] */
  uint32_t *readers;           /* [size / FT_GRANULE][warps]: stamp of each warp's last read */
  uint64_t *origins; /* [size / FT_GRANULE]: global address the bytes were copied from; 0 */
};

/* FT_E_MEMORY. bytes stays the caller's. */
int ft_shared_make(struct ft_shared_memory *shared, unsigned char *bytes, uint32_t size,
                   int threads);
void ft_shared_free(struct ft_shared_memory *shared);
/* A new block: nothing written, noise everywhere. */
void ft_shared_reset(struct ft_shared_memory *shared);

/* What is wrong with `bytes` at address (in the shared window), for an access by this thread; NULL:
 * nothing, and it is noted. The message lies in what. */
const char *ft_shared_read(struct ft_shared_memory *shared, int thread, uint32_t address, int bytes,
                           int line, char what[256]);
const char *ft_shared_write(struct ft_shared_memory *shared, int thread, uint32_t address,
                            int bytes, int line, char what[256]);
/* An asynchronous copy that begins: like a write, and nobody may touch the bytes until it ends. */
const char *ft_shared_begin_copy(struct ft_shared_memory *shared, int thread, uint32_t address,
                                 int bytes, int line, char what[256]);
/* It ends now, for this thread: the bytes are there, from global address origin (0: zeros). */
void ft_shared_end_copy(struct ft_shared_memory *shared, int thread, uint32_t address, int bytes,
                        uint64_t origin, int line);

/* Where bytes of the window are; the address must have been checked. */
unsigned char *ft_shared_at(const struct ft_shared_memory *shared, uint32_t address);
/* Global address that the element at this address was copied from, 0 where unknown. */
uint64_t ft_shared_origin(const struct ft_shared_memory *shared, uint32_t address);

/* All of the block, or these threads, meet: what each did before is ordered before what any does
 * next. */
void ft_shared_order_all(struct ft_shared_memory *shared);
void ft_shared_order(struct ft_shared_memory *shared, const int *threads, int count);

#endif
