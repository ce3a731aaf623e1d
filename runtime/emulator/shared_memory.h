/* shared_memory.h: the shared memory of one block, and what is known of its every two bytes: who
 * wrote them, who read them since, whether a copy is still on its way, which global bytes they are.
 * in -> out: accesses -> the first thing that is wrong with them, in words.
 *
 * An access is in order when each earlier one that it conflicts with is known to who does it
 * (clocks.h). Barriers, mbarriers, __syncwarp and waits for what is asynchronous order; shuffles,
 * votes and products do not. */
#ifndef RUNTIME_EMULATOR_SHARED_MEMORY_H
#define RUNTIME_EMULATOR_SHARED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/emulator/clocks.h"

enum { FT_GRANULE = 2 }; /* bytes; the smallest element */

enum ft_granule_use {
  FT_PLAIN,
  FT_PENDING, /* a copy is on its way here */
  FT_MBARRIER
};

struct ft_granule {
  uint32_t writer;       /* stamp of the last write; 0: never written */
  uint16_t written_line; /* where it was done */
  uint16_t read_line;    /* of the last read since */
  uint64_t readers;      /* a bit for each slot of ft_shared_memory.readers that read since */
  enum ft_granule_use use;
  bool atomic; /* the last write was, and one that is needs no order with it */
};

struct ft_shared_memory {
  unsigned char *bytes; /* the kernel's own array, or `kept` */
  uint32_t size;
  unsigned char *kept; /* owned: for them while another block of the cluster runs; NULL: no other */
  int first_agent;     /* that of the block's first thread */
  int warps;
  bool sees_plain; /* plain stores are seen; else what looks unwritten to an atomic may have been
                      written */
  struct ft_clocks *clocks;    /* the cluster's */
  struct ft_granule *granules; /* [size / FT_GRANULE] */
  int slots;                   /* one for each warp, each warpgroup's products, TMA's stores, and
                                  each block of the cluster, for what it reads from here */
  uint32_t *readers;           /* [size / FT_GRANULE][slots]: stamp of each slot's last read */
  uint64_t *origins; /* [size / FT_GRANULE]: global address the bytes were copied from; 0 */
};

/* For the block of this rank. FT_E_MEMORY. bytes, the kernel's array, stays the caller's; of
 * several blocks in a cluster the first one's are there, the others' are `kept`. */
int ft_shared_make(struct ft_shared_memory *shared, unsigned char *bytes, uint32_t size,
                   int threads, struct ft_clocks *clocks, int rank, bool sees_plain);
void ft_shared_free(struct ft_shared_memory *shared);
/* A new block: nothing written, noise everywhere. */
void ft_shared_reset(struct ft_shared_memory *shared);
/* The kernel's array holds the one's from now on, the other's are kept. */
void ft_shared_move(struct ft_shared_memory *in, struct ft_shared_memory *out);

/* Who accesses: what it is ordered behind, and the mark it leaves. */
struct ft_accessor {
  const uint32_t *clock;
  uint32_t stamp;
  int slot; /* for reads */
  int line;
  bool async;  /* by the asynchronous proxy: TMA, wgmma */
  bool atomic; /* in one go; what was there must have been written */
};
/* A thread of the block, by its number in it, here and below. */
struct ft_accessor ft_shared_thread(const struct ft_shared_memory *shared, int thread, int line);
static inline int ft_slot_of_products(const struct ft_shared_memory *shared, int warpgroup) {
  return shared->warps + warpgroup;
}
static inline int ft_slot_of_stores(const struct ft_shared_memory *shared) {
  return shared->slots - 1 - shared->clocks->blocks;
}

/* For reads by another block, of this rank. */
static inline int ft_slot_of_block(const struct ft_shared_memory *shared, int rank) {
  return ft_slot_of_stores(shared) + 1 + rank;
}

/* What is wrong with `bytes` at address (in the shared window), for this access; NULL: nothing, and
 * it is noted. The message lies in what. */
const char *ft_shared_read_by(struct ft_shared_memory *shared, const struct ft_accessor *by,
                              uint32_t address, int bytes, char what[256]);
/* use: what the bytes are from now on; nobody may touch them while a copy is on its way. */
const char *ft_shared_write_by(struct ft_shared_memory *shared, const struct ft_accessor *by,
                               uint32_t address, int bytes, enum ft_granule_use use,
                               char what[256]);
/* The same for a thread's ordinary accesses. */
const char *ft_shared_read(struct ft_shared_memory *shared, int thread, uint32_t address, int bytes,
                           int line, char what[256]);
const char *ft_shared_write(struct ft_shared_memory *shared, int thread, uint32_t address,
                            int bytes, int line, char what[256]);
/* Atomic updates. Of several that nothing orders, later accesses are held against the last. */
const char *ft_shared_update(struct ft_shared_memory *shared, int thread, uint32_t address,
                             int bytes, int line, char what[256]);

/* A copy that was on its way is there, as if written with this stamp (0: that of its begin), from
 * global address origin (0: zeros). */
void ft_shared_landed(struct ft_shared_memory *shared, uint32_t address, int bytes, uint32_t stamp,
                      uint64_t origin);

/* Where bytes of the window are; the address must have been checked. */
unsigned char *ft_shared_at(const struct ft_shared_memory *shared, uint32_t address);
/* Global address that the element at this address was copied from, 0 where unknown. */
uint64_t ft_shared_origin(const struct ft_shared_memory *shared, uint32_t address);

#endif
