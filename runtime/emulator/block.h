/* block.h: the inside of the emulated machine: one block of threads at a time, each thread a fiber.
 * in -> out: what launch.c, warp_ops.c, shared_memory.c, copies.c and fault.c share. */
#ifndef RUNTIME_EMULATOR_BLOCK_H
#define RUNTIME_EMULATOR_BLOCK_H

#include "runtime/emulator/fiber.h"
#include "runtime/emulator/fragment.h"
#include "runtime/emulator/launch.h"
#include "runtime/emulator/shared_memory.h"

enum { FT_BARRIERS = 16, FT_THREADS_MOST = 1024 }; /* of a block, as on every GPU so far */

/* A cp.async under way: its bytes move when a wait orders it. */
struct ft_copy {
  const void *from;
  uint32_t to;
  int bytes, valid;
  int line;
};

enum ft_waiting { FT_RUNNING, FT_AT_WARP_OP, FT_AT_BARRIER, FT_ENDED };

struct ft_thread {
  struct ft_fiber fiber;
  int number; /* in its block */
  enum ft_waiting waiting;
  int what; /* the warp op or the barrier waited at */
  int line;
  void *record;

  struct ft_copy *copies; /* committed ones first, group after group; owned */
  int copy_count, copy_room;
  int *groups; /* copies in each committed group, the oldest first; owned */
  int group_count, group_room;

  struct ft_fragments fragments; /* where the values of its registers come from */
};

struct ft_warp {
  struct ft_thread *lanes[FE_WARP];
  int arrived; /* lanes waiting at a warp op */
  bool runnable;
};

struct ft_barrier {
  int arrived, expected;
};

struct ft_block {
  const struct ft_emulated_launch *launch;
  struct fe_machine machine; /* what the kernel sees */
  struct ft_thread *threads;
  struct ft_warp *warps;
  int thread_count, warp_count;
  struct ft_thread *running;
  struct ft_barrier barriers[FT_BARRIERS];
  struct ft_shared_memory shared;

  bool faulted;
  char *message;
  size_t message_size;
};

/* The block of the launch under way; a kernel's calls come without an argument. */
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
/* "line 12 (parts/softmax.cu.in:3)" */
const char *ft_line_text(int line, char text[96]);

/* warp_ops.c: carries an op out for all lanes of a warp; names[op] for messages. */
void ft_warp_op_run(enum fe_warp_op op, struct ft_warp *warp, int line);
extern const char *const ft_warp_op_names[FE_WARP_OPS];

/* waits.c: returns when those waited for have come. */
void ft_arrive_at_warp_op(enum fe_warp_op op, void *record, int line);
void ft_arrive_at_barrier(int id, int threads, int line);
void ft_step(void); /* the block has taken all its steps */
void ft_wait_at(struct ft_thread *thread, enum ft_waiting waiting, int what, int line,
                void *record);
/* "is at ldmatrix in line 12 (parts/mma_tile.cu.in:3)", "has ended" */
const char *ft_thread_text(const struct ft_thread *thread, char text[160]);

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
