/* fake.h: what tests ask of and tell the stand-ins for libcuda and NVRTC (both are opened with
 * dlopen, so the functions below are looked up with dlsym in the very library the code under test
 * has opened). in -> out: failure to inject -> calls counted, last launch, objects alive. */
#ifndef TESTS_FAKE_FAKE_H
#define TESTS_FAKE_FAKE_H

#include <stddef.h>

/* Forgets counts and records. failure: "SYMBOL:N:CODE" lets the N-th call (from 1) of SYMBOL give
 * CODE, "*" counts all calls together, "cu*" so where symbols begin with cu, ":ever" behind it lets
 * the later ones give it, too; NULL: none. Before the first reset FATUNE_FAKE_FAIL is taken. */
typedef void fake_reset_function(const char *failure);

/* Calls of one symbol since the reset; NULL: of all. */
typedef int fake_calls_function(const char *symbol);

/* The name of the call that was made to fail; "" when none was. */
typedef const char *fake_failed_function(void);

/* Device buffers, modules, streams, events, contexts retained, programs that were not given back.
 */
typedef int fake_live_function(void);

struct fake_launch {
  int count;
  unsigned grid[3], block[3], smem;
  void *stream;
  unsigned char params[4096]; /* with tensor maps, if any were made for its module */
  char order[16]; /* launches since the reset: 'p'repare, 'k'ernel, 'c'onvert; the first 15 */
  unsigned grids[3], threads[3]; /* the last ones of prepare, kernel, convert */
  int tiled;                     /* 1: of a module for which tensor maps were made */
};
typedef const struct fake_launch *fake_launch_function(void);

/* What the fake GPU is like; set after reset. */
struct fake_gpu {
  const char *name;
  int sm, sm_count, count; /* compute capability x 10; GPUs of this kind */
  int capturing;           /* 1: streams are being captured */
  int current;             /* 1: a context is current in the calling thread from the start */
};
typedef void fake_gpu_function(const struct fake_gpu *gpu);

/* Events take their time from there on; NULL, as after a reset: from the machine's clock. */
struct timespec;
typedef void fake_clock_function(const struct timespec *now);

/* A function attribute as cuFuncSetAttribute last set it; -1: never. */
typedef int fake_function_set_function(int attribute);

#endif
