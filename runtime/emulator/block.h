/* block.h: the inside of the emulated machine: one cluster of blocks at a time, each thread a
 * fiber. in -> out: what launch.c, waits.c and what carries operations out share. */
#ifndef RUNTIME_EMULATOR_BLOCK_H
#define RUNTIME_EMULATOR_BLOCK_H

#include "runtime/emulator/fiber.h"
#include "runtime/emulator/fragment.h"
#include "runtime/emulator/launch.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_map.h"
#include "runtime/emulator/wgmma.h"

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
  uint32_t *gathered; /* clock of those who have; owned */
};

struct ft_mbarrier {
  uint32_t address;
  int agent;          /* of the TMA loads it waits for */
  int count, missing; /* arrivals of a phase; those still to come */
  int64_t expected;   /* bytes of TMA loads the phase waits for */
  int64_t queued;     /* bytes of loads issued for it, which land when somebody waits */
  unsigned phase;     /* the one under way */
  unsigned waited; /* the one under way when somebody last waited for the one before: 0 at first */
  uint32_t init_stamp; /* who made it, in which line */
  int init_line;
  uint32_t announced;            /* stamp of the first fence that has told TMA of it; 0: none */
  uint32_t *gathered, *released; /* clocks: of this phase's arrivals, of the phases before; owned */
};

/* A TMA load under way to the block that has the mbarrier. */
struct ft_load {
  struct ft_box box;
  struct ft_thread *thread; /* whose it is; of any block of the cluster */
  int mbarrier, line;
};

/* The last arrival of a thread of another block. */
struct ft_arrival {
  uint32_t stamp; /* 0: none */
  int line;
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
};

struct ft_cluster {
  struct ft_block blocks[FT_CLUSTER_MOST];
  int count;
  struct ft_clocks clocks;
  int arrived, ended; /* threads at the barrier of the cluster; those that will not come */
  uint32_t *gathered; /* clock of those who have arrived; owned */

  bool faulted;
  char *message;
  size_t message_size;
};

/* The block that runs; a kernel's calls come without an argument. */
extern struct ft_block *ft_block_now;

static inline int ft_lane_of(const struct ft_thread *thread) {
  return thread->number % FE_WARP;
}

/* Ends the launch from inside a thread: "fatune_kernel, line 12 (parts/...), block 0, warp 1, lane
 * 3: " and what happened. Does not return. line 0: that of the innermost call. */
_Noreturn void ft_fault(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same about another lane, for which the running one works. Does not return. */
_Noreturn void ft_fault_lane(const struct ft_thread *thread, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from outside of all threads; returns. */
void ft_fault_outside(const struct ft_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "block 3"; "block 3 (rank 1 of its cluster)" where the cluster has several */
const char *ft_block_text(const struct ft_block *block, char text[FT_BLOCK_WORDS]);
/* "line 12 (parts/softmax.cu.in:3)" */
const char *ft_line_text(int line, char text[96]);

/* warp_ops.c: carries an op out for all lanes of a warp; names[op] for messages. */
void ft_warp_op_run(enum fe_warp_op op, struct ft_warp *warp, int line);
extern const char *const ft_warp_op_names[FE_WARP_OPS];

/* waits.c: returns when those waited for have come. */
void ft_arrive_at_warp_op(enum fe_warp_op op, void *record, int line);
void ft_arrive_at_warpgroup_op(enum fe_warpgroup_op op, void *record, int line);
void ft_arrive_at_barrier(int line);
void ft_step(void); /* the block has taken all its steps */
void ft_count_step(int line);
void ft_wait_at(struct ft_thread *thread, enum ft_waiting waiting, int what, int line,
                void *record);
void ft_release(struct ft_thread *thread); /* it may run on */
/* The memory, which must not be NULL. */
void *ft_need(void *memory);
/* Room for one more than `count` things of this size in *array, which it returns. */
void *ft_make_room(void *array, int *room, int count, size_t size);

/* deadlock.c: nobody can run and not all have ended. */
void ft_tell_deadlock(const struct ft_cluster *cluster);
/* "is at ldmatrix in line 12 (parts/mma_tile.cu.in:3)", "has ended" */
const char *ft_thread_text(const struct ft_thread *thread, char text[FT_THREAD_WORDS]);

/* named_barriers.c: bar.sync and bar.arrive of a warp that has come together. */
void ft_named_barrier(struct ft_warp *warp, bool waits, int line);
void ft_barriers_reset(struct ft_block *block);
void ft_barriers_free(struct ft_block *block);

/* cluster.c: what the blocks of a cluster have to do with each other. */
void ft_cluster_reset(struct ft_cluster *cluster, unsigned first_block);
/* The block runs from now on. */
void ft_cluster_turn_to(struct ft_block *block);
/* barrier.cluster of a warp that has come together. */
void ft_cluster_barrier(struct ft_warp *warp, int line);
void ft_cluster_thread_ends(const struct ft_thread *thread);
/* The block of this rank of the running one's cluster, which must be there still. */
struct ft_block *ft_cluster_block(unsigned rank, int line);
/* The running thread arrives at an mbarrier of this block; to be called before it does. */
void ft_cluster_note_arrival(struct ft_block *there, int line);
/* As the block ends: an arrival of another block that may come later is a fault. */
void ft_check_arrivals_done(struct ft_block *block);

/* mbarriers.c, and the loads they wait for. */
void ft_mbarrier_init(uint32_t address, int arrivals, int line);
void ft_mbarrier_init_fence(int line);
void ft_mbarrier_arrive(uint32_t address, uint32_t bytes, int line);
void ft_mbarrier_arrive_at(uint32_t address, unsigned rank, int line);
int ft_mbarrier_test(uint32_t address, unsigned parity, int line);
void ft_mbarrier_wait(uint32_t address, unsigned parity, int line);
void ft_tma_load(uint32_t to, const void *map, uint32_t mbarrier, const struct fe_place *at,
                 int line);
void ft_tma_load_multicast(uint32_t to, const void *map, uint32_t mbarrier,
                           const struct fe_place *at, unsigned blocks, int line);
void ft_async_proxy_fence(int line);
void ft_mbarriers_reset(struct ft_block *block);
void ft_mbarriers_free(struct ft_block *block);
/* As the block ends: a load that has not landed is a fault. */
void ft_check_loads_landed(struct ft_block *block);

/* tma_store.c */
void ft_tma_store(const void *map, uint32_t from, const struct fe_place *at, int line);
void ft_tma_store_commit(int line);
void ft_tma_store_wait(int youngest, int line);
void ft_stores_end(struct ft_thread *thread); /* as the thread ends */
void ft_stores_free(struct ft_thread *thread);

/* warpgroup_ops.c: like warp_ops.c. */
void ft_warpgroup_op_run(enum fe_warpgroup_op op, int warpgroup, int line);
extern const char *const ft_warpgroup_op_names[FE_WARPGROUP_OPS];
void ft_warpgroups_reset(struct ft_block *block);
/* As the block ends: a product under way is a fault. */
void ft_check_products_done(struct ft_block *block);

/* access.c: what the functions of struct fe_machine do. */
uint32_t ft_emulate_shared_address(const void *pointer, int line);
void ft_emulate_shared_read(void *to, uint32_t from, int bytes, int line);
void ft_emulate_shared_write(uint32_t to, const void *from, int bytes, int line);
void ft_emulate_global_read(void *to, const void *from, int bytes, int line);
void ft_emulate_global_write(void *to, const void *from, int bytes, int line);
void ft_emulate_plain(const void *memory, int bytes, enum fe_access access);

/* copies.c: cp.async. */
void ft_copy_async(uint32_t to, const void *from, int bytes, int valid, int line);
void ft_copy_commit(int line);
void ft_copy_wait(int youngest, int line);
void ft_copies_forget(struct ft_thread *thread);

#endif
