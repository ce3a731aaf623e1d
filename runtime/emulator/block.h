/* block.h: a cluster of blocks, their warps and threads, each thread a fiber; the block that runs.
 */
#ifndef RUNTIME_EMULATOR_BLOCK_H
#define RUNTIME_EMULATOR_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/fiber.h"
#include "runtime/emulator/fragment.h"
#include "runtime/emulator/grid.h"
#include "runtime/emulator/products.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_map.h"

enum { FT_BARRIERS = 16, FT_THREADS_MOST = 1024 }; /* of a block, as on every GPU so far */
enum { FT_MBARRIERS = 64, FT_MBARRIER_BYTES = 8 };
enum { FT_THREAD_WORDS = 256, FT_BLOCK_WORDS = 48 }; /* room for where a thread, a block is */

/* A cp.async under way: its bytes move when a wait orders it. */
struct ft_copy {
  const void *from;
  uint32_t to;
  int bytes, valid;
  int line;
};

enum ft_waiting {
  FT_RUNNING,
  FT_AT_WARP_OP,
  FT_AT_WARPGROUP_OP,
  FT_AT_BARRIER,
  FT_AT_MBARRIER,
  FT_AT_CLUSTER,
  FT_ENDED
};

struct ft_thread {
  struct ft_fiber fiber;
  struct ft_block *block;
  int number; /* in its block */
  int agent;  /* in clocks */
  enum ft_waiting waiting;
  int what; /* the op, the barrier or the index of the mbarrier waited at */
  int line;
  void *record;

  struct ft_copy *copies; /* committed ones first, group after group; owned */
  int copy_count, copy_room;
  int *groups; /* copies in each committed group, the oldest first; owned */
  int group_count, group_room;

  struct ft_fragments fragments; /* where the values of its registers come from */
  struct ft_stores *stores;      /* TMA's, NULL: none yet; owned */
};

struct ft_warp {
  struct ft_thread *lanes[FE_WARP];
  int arrived; /* lanes waiting at a warp op */
  bool runnable;
};

/* 128 threads from a multiple of 128 on. */
struct ft_warpgroup {
  int arrived;   /* lanes waiting at a warpgroup op */
  int registers; /* that each of its threads may use: setmaxnreg */
  int claim;     /* how many it waits for; 0: it does not */
  struct ft_products products;
};

struct ft_barrier {
  int arrived, expected;
  uint32_t warps;     /* a bit for each that has come to bar.sync or bar.arrive */
  bool all_agree;     /* of those who have come */
  uint32_t *gathered; /* clock of those who have; owned */
};

struct ft_mbarrier {
  uint32_t address;
  int agent;          /* of the TMA loads it waits for */
  int count, missing; /* arrivals of a phase; those still to come */
  int64_t expected;   /* bytes of TMA loads the phase waits for */
  int64_t queued;     /* bytes of loads issued for it, which land when a thread waits */
  unsigned phase;     /* the one under way */
  unsigned
      waited; /* the phase under way when a thread last waited for the one before it; 0 at first */
  uint32_t init_stamp; /* of the thread that made it, in this line */
  int init_line;
  uint32_t announced;            /* stamp of the first fence that has told TMA of it; 0: none */
  uint32_t *gathered, *released; /* clocks: of this phase's arrivals, of the phases before; owned */
};

/* A TMA load under way to the block that has the mbarrier. Its bytes come from global memory, or
 * from the shared memory of a block of the cluster. */
struct ft_load {
  struct ft_box box;
  struct ft_block *source;  /* NULL: global memory */
  struct ft_thread *thread; /* which issued it, of any block of the cluster */
  int mbarrier, line;
};

/* The last time that a thread of another block arrived at an mbarrier of this block, or read this
 * block's shared memory. */
struct ft_arrival {
  uint32_t stamp; /* 0: none */
  int line;
  bool reads;
};

struct ft_block {
  const struct ft_emulated_launch *launch;
  struct ft_cluster *cluster;
  int rank;                  /* in the cluster */
  bool ended;                /* all of its threads have */
  struct fe_machine machine; /* what the kernel sees */
  struct ft_thread *threads;
  struct ft_warp *warps;
  struct ft_warpgroup *warpgroups;
  int thread_count, warp_count, warpgroup_count;
  struct ft_thread *running;
  int registers_left; /* of those each warpgroup was launched with: setmaxnreg */
  struct ft_barrier barriers[FT_BARRIERS];
  struct ft_mbarrier mbarriers[FT_MBARRIERS];
  int mbarrier_count;
  struct ft_load *loads; /* owned */
  int load_count, load_room;
  struct ft_shared_memory shared;
  struct ft_arrival *arrivals; /* [threads of the clocks]; owned */
  /* Of its threads, FT_FRAGMENT_SLOTS each; owned. */
  struct ft_fragment *fragments;
};

struct ft_cluster {
  struct ft_block blocks[FT_CLUSTER_MOST];
  int count;
  struct ft_clocks clocks;
  int arrived, ended; /* threads at the cluster's barrier; threads that have ended */
  uint32_t *gathered; /* clock of those who have arrived; owned */

  bool faulted;
  char *message;
  size_t message_size;
};

/* The block that runs. A kernel's calls to the machine do not name it. */
extern struct ft_block *ft_block_now;

static inline int ft_lane_of(const struct ft_thread *thread) {
  return thread->number % FE_WARP;
}

/* The thread waits from now on; FT_RUNNING: for nothing. */
void ft_wait_at(struct ft_thread *thread, enum ft_waiting waiting, int what, int line,
                void *record);
/* It may run on. */
void ft_release(struct ft_thread *thread);

#endif
