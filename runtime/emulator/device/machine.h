/* machine.h: what an emulated kernel and the machine that runs it know of each other.
 * in -> out: C++ made from an emitted kernel -> struct fe_kernel; the machine -> struct fe_machine.
 * Plain C, read by both sides: the library includes it, and every emulated kernel is compiled with
 * it (the build embeds this text). `line` is always the line of the emitted text. */
#ifndef RUNTIME_EMULATOR_DEVICE_MACHINE_H
#define RUNTIME_EMULATOR_DEVICE_MACHINE_H

#include <stdint.h>

enum { FE_ABI = 11 };
enum { FE_WARP = 32 };
/* Dynamic shared memory begins here in the shared window; what lies below is nobody's. */
enum { FE_SHARED_BASE = 1024, FE_SHARED_MOST = 232448 };
/* What a variable holds that was never written (-ftrivial-auto-var-init=pattern): every byte 0xFE
 * with GCC; with Clang 0xAA in integers and 0xFF in floats. */
enum { FE_UNWRITTEN_GCC = 0xFE, FE_UNWRITTEN_CLANG = 0xAA, FE_UNWRITTEN_CLANG_FLOAT = 0xFF };
/* What an accumulator holds while a wgmma that writes it is under way: no number. */
enum { FE_UNDER_WAY = 0x7FEDC0DE };

struct fe_index {
  unsigned x, y, z;
};

/* Where the running thread is; the machine changes it whenever it changes threads. */
struct fe_here {
  struct fe_index thread, block, block_size, grid;
  unsigned rank; /* of the block in its cluster */
};

/* Operations of a whole warp: each lane arrives with a record, the last one to arrive carries the
 * operation out for all. ORDER WARP OPS: runtime/emulator/warp_ops.c has one function for each. */
enum fe_warp_op {
  FE_SYNCWARP,    /* no record */
  FE_SHUFFLE_XOR, /* struct fe_shuffle */
  FE_VOTE_ANY,    /* struct fe_shuffle, mask unused */
  FE_REDUCE_OR,   /* struct fe_shuffle, mask unused */
  FE_LDMATRIX_X4, /* struct fe_ldmatrix */
  FE_LDMATRIX_X4_TRANS,
  FE_MMA_BF16, /* struct fe_mma: m16n8k16, fp32 accumulators */
  FE_MMA_FP16,
  FE_MMA_TF32,    /* struct fe_mma: m16n8k8 */
  FE_MMA_E4M3,    /* struct fe_mma: m16n8k32 */
  FE_STMATRIX_X4, /* struct fe_stmatrix */
  FE_STMATRIX_X4_TRANS,
  FE_BARRIER_SYNC,   /* struct fe_barrier: bar.sync */
  FE_BARRIER_ARRIVE, /* struct fe_barrier: bar.arrive, which does not wait */
  FE_CLUSTER_SYNC,   /* no record; barrier.cluster: arrive and wait */
  FE_WARP_OPS
};

struct fe_shuffle {
  uint32_t value; /* in and out */
  uint32_t mask;  /* lane i reads lane i ^ mask */
};

struct fe_ldmatrix {
  uint32_t *registers; /* r[0..3]: row lane / 4, columns 2 (lane % 4) and one more of matrix i */
  uint32_t address;    /* shared: of row lane % 8 of matrix lane / 8 */
};

struct fe_stmatrix {
  uint32_t registers[4]; /* as ldmatrix has them */
  uint32_t address;      /* shared: of row lane % 8 of matrix lane / 8 */
};

struct fe_barrier {
  int id, threads;
  int agrees; /* in: this thread, out: all that have come; 1 where nobody asks */
};

/* c += A B; fragments as in the PTX manual, "Matrix Fragments for mma.m16n8k16", "mma.m16n8k8" and
 * "mma.m16n8k32". Where a register lives tells where its value came from. */
struct fe_mma {
  float *c;          /* [4] */
  const uint32_t *a; /* [4] */
  const uint32_t *b[2];
};

/* Operations of a warpgroup, 128 threads from a multiple of 128 on, in the same way. ORDER
 * WARPGROUP OPS: runtime/emulator/warpgroup_ops.c. */
enum fe_warpgroup_op {
  FE_WGMMA_FENCE,       /* no record */
  FE_WGMMA,             /* struct fe_wgmma; done when a wait has passed */
  FE_WGMMA_COMMIT,      /* no record */
  FE_WGMMA_WAIT,        /* int: until at most so many groups are under way */
  FE_REGISTERS_RELEASE, /* int: of each thread from here on; setmaxnreg.dec */
  FE_REGISTERS_CLAIM,   /* int; setmaxnreg.inc */
  FE_WARPGROUP_OPS
};

/* What a wgmma multiplies: 16 deep of fp16 and bf16, 32 deep of e4m3. */
enum fe_wgmma_dtype { FE_OF_FP16, FE_OF_BF16, FE_OF_E4M3 };

/* c = A B or c += A B, m64nNk16 or m64nNk32, fp32 accumulators; fragments and descriptors as in the
 * PTX manual, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate". */
struct fe_wgmma {
  float *c; /* [registers], N / 2 */
  int registers;
  int accumulate;
  const uint32_t *a; /* [4], or NULL: a_descriptor */
  uint64_t a_descriptor, b_descriptor;
  /* The depth of what a descriptor says lies across the rows in shared memory (MN-major), not along
   * them. */
  int a_across, b_across;
  enum fe_wgmma_dtype dtype;
};

/* Coordinates in a tensor map, the innermost first. */
struct fe_place {
  int rank;
  int index[5];
};

enum fe_access { FE_READ, FE_WRITE, FE_ATOMIC };

struct fe_machine {
  struct fe_here here;
  /* Of the running thread: what happens within is of no interest to `access`. */
  const unsigned char *stack;
  uint64_t stack_bytes;
  uint64_t steps_left; /* of the block; `step` is called when they are used up */

  /* Returns when all 32 lanes of the warp have arrived at the same op in the same line. */
  void (*warp)(enum fe_warp_op op, void *record, int line);
  /* Returns when all threads of the block have arrived. */
  void (*barrier)(int line);

  /* Shared memory by its 32-bit address; any size that is a power of two, aligned to itself. */
  void (*shared_read)(void *to, uint32_t from, int bytes, int line);
  void (*shared_write)(uint32_t to, const void *from, int bytes, int line);
  uint32_t (*shared_address)(const void *pointer, int line);

  /* Global memory, checked and then copied. */
  void (*global_read)(void *to, const void *from, int bytes, int line);
  void (*global_write)(void *to, const void *from, int bytes, int line);

  /* cp.async: `bytes` of which the first `valid` are read from `from`, the rest become zeros. Takes
   * place when the wait that orders it is passed, no sooner. */
  void (*copy_async)(uint32_t to, const void *from, int bytes, int valid, int line);
  void (*copy_commit)(int line);
  void (*copy_wait)(int youngest, int line); /* until at most so many groups are under way */

  /* Like `warp`, for the 128 lanes of a warpgroup. */
  void (*warpgroup)(enum fe_warpgroup_op op, void *record, int line);

  /* mbarrier, by its 32-bit shared address. bytes: those that the phase also waits for. */
  void (*mbarrier_init)(uint32_t barrier, int arrivals, int line);
  void (*mbarrier_init_fence)(int line);
  void (*mbarrier_arrive)(uint32_t barrier, uint32_t bytes, int line);
  int (*mbarrier_test)(uint32_t barrier, unsigned parity, int line);
  void (*mbarrier_wait)(uint32_t barrier, unsigned parity, int line);
  /* At the one that lies at this address in the block of this rank of the cluster. */
  void (*mbarrier_arrive_at)(uint32_t barrier, unsigned rank, int line);
  /* From the shared memory of that block. */
  void (*cluster_read)(void *to, uint32_t from, int bytes, unsigned rank, int line);

  /* TMA: the box of a tensor map at as many coordinates as it has dimensions, the innermost first.
   * A load lands when somebody waits for the phase of the mbarrier that it completes, a store when
   * its wait is passed. */
  void (*tma_load)(uint32_t to, const void *map, uint32_t barrier, const struct fe_place *at,
                   int line);
  /* To the same addresses in each of `blocks` of the cluster, a bit for each rank. */
  void (*tma_load_multicast)(uint32_t to, const void *map, uint32_t barrier,
                             const struct fe_place *at, unsigned blocks, int line);
  void (*tma_store)(const void *map, uint32_t from, const struct fe_place *at, int line);
  void (*tma_store_commit)(int line);
  void (*tma_store_wait)(int youngest, int line);
  /* Bytes side by side, as late as the above: a load, and fp32 numbers that are added to those in
   * global memory. */
  void (*bulk_load)(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, int line);
  void (*bulk_add)(void *to, uint32_t from, uint32_t bytes, int line);
  /* Shared memory of this block to that of the block of this rank, whose barrier counts the bytes.
   */
  void (*copy_to_block)(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier, unsigned rank,
                        int line);
  void (*async_proxy_fence)(int line);
  void (*release)(int line); /* before what this thread did is made known to other blocks */

  /* From the compiler's own instrumentation: every plain load and store that is not of the stack,
   * those of the stack that read what was never written, and one basic block too many. */
  void (*access)(const void *address, int bytes, enum fe_access access);
  void (*step)(void);

  /* Fails the launch with the place: for primitives that find fault with an operand themselves. */
  void (*fault)(int line, const char *what);
};

/* One of the kernels of a text. */
struct fe_entry {
  const char *name;
  int argument_bytes;
  int cluster;                       /* blocks of one: 1, 2, 4, 8, 16 */
  void (*run)(const void *argument); /* one thread, from begin to end */
};

/* What a compiled emulated text exports, as `fatune_emulated`. */
struct fe_kernel {
  int abi;        /* FE_ABI */
  int sees_plain; /* plain loads and stores come to the machine */
  int clang;      /* compiled by Clang, else by GCC: what was never written holds another byte */
  int entry_count;
  const struct fe_entry *entries;
  struct fe_machine **machine;                  /* to be set before the first run */
  unsigned char *shared;                        /* FE_SHARED_MOST bytes, aligned to 1024 */
  const unsigned char *image_begin, *image_end; /* the loaded object: its constants and variables */
  int lines;                                    /* of the emitted text */
  const char *const *origins; /* [lines]: "parts/softmax.cu.in:12", where each came from */
};

#endif
