/* shared_memory.c: shared memory under watch.
 * in -> out: accesses, barriers -> granules, clocks; what is wrong.
 * A stamp is a time and a thread in 32 bits. A thread's time grows when it meets others. */
#include "runtime/emulator/shared_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/emulator/device/machine.h"

enum { THREAD_BITS = 10, NOISE = 0xCB };

static uint32_t *clock_of(const struct ft_shared_memory *shared, int thread) {
  return shared->clocks + (size_t)thread * (size_t)shared->threads;
}

static uint32_t stamp_now(const struct ft_shared_memory *shared, int thread) {
  return clock_of(shared, thread)[thread] << THREAD_BITS | (uint32_t)thread;
}

static int thread_of(uint32_t stamp) {
  return (int)(stamp & ((1u << THREAD_BITS) - 1));
}

/* Whether what was stamped came before all that the owner of the clock does now. */
static bool is_before(uint32_t stamp, const uint32_t *clock) {
  return (stamp >> THREAD_BITS) <= clock[thread_of(stamp)];
}

int ft_shared_make(struct ft_shared_memory *shared, unsigned char *bytes, uint32_t size,
                   int threads) {
  const size_t granules = size / FT_GRANULE + 1;
  *shared = (struct ft_shared_memory){.bytes = bytes, .size = size, .threads = threads};
  shared->warps = (threads + FE_WARP - 1) / FE_WARP;
  shared->clocks = calloc((size_t)threads * (size_t)threads, sizeof *shared->clocks);
  shared->granules = calloc(granules, sizeof *shared->granules);
  shared->readers = calloc(granules * (size_t)shared->warps, sizeof *shared->readers);
  shared->origins = calloc(granules, sizeof *shared->origins);
  if (shared->clocks && shared->granules && shared->readers && shared->origins) return FT_OK;
  ft_shared_free(shared);
  return ft_fail(FT_E_MEMORY, "no memory to watch %u bytes of shared memory", size);
}

void ft_shared_free(struct ft_shared_memory *shared) {
  free(shared->clocks);
  free(shared->granules);
  free(shared->readers);
  free(shared->origins);
  *shared = (struct ft_shared_memory){0};
}

void ft_shared_reset(struct ft_shared_memory *shared) {
  const size_t granules = shared->size / FT_GRANULE;
  memset(shared->bytes, NOISE, shared->size);
  memset(shared->granules, 0, granules * sizeof *shared->granules);
  memset(shared->readers, 0, granules * (size_t)shared->warps * sizeof *shared->readers);
  memset(shared->origins, 0, granules * sizeof *shared->origins);
  memset(shared->clocks, 0,
         (size_t)shared->threads * (size_t)shared->threads * sizeof *shared->clocks);
  for (int t = 0; t < shared->threads; t++) clock_of(shared, t)[t] = 1;
}

unsigned char *ft_shared_at(const struct ft_shared_memory *shared, uint32_t address) {
  return shared->bytes + (address - FE_SHARED_BASE);
}

uint64_t ft_shared_origin(const struct ft_shared_memory *shared, uint32_t address) {
  const uint32_t offset = address - FE_SHARED_BASE;
  const uint64_t origin = shared->origins[offset / FT_GRANULE];
  return origin ? origin + offset % FT_GRANULE : 0;
}

/* ---- what can be wrong ---- */

static const char *misplaced(const struct ft_shared_memory *shared, uint32_t address, int bytes,
                             const char *verb, char what[256]) {
  if (address % (uint32_t)bytes != 0) {
    snprintf(what, 256, "%s %d bytes of shared memory at offset %lld, which is no multiple of %d",
             verb, bytes, (long long)address - FE_SHARED_BASE, bytes);
    return what;
  }
  if (address >= FE_SHARED_BASE &&
      (uint64_t)address + (uint64_t)bytes <= (uint64_t)FE_SHARED_BASE + shared->size)
    return NULL;
  snprintf(what, 256, "%s %d bytes of shared memory at offset %lld; the block has %u bytes", verb,
           bytes, (long long)address - FE_SHARED_BASE, shared->size);
  return what;
}

static const char *conflict(size_t granule, const char *verb, uint32_t stamp, const char *other,
                            int line, char what[256]) {
  snprintf(what, 256,
           "%s shared memory at offset %zu, which warp %d, lane %d %s in line %d, and nothing "
           "orders the two (race)",
           verb, granule * FT_GRANULE, thread_of(stamp) / FE_WARP, thread_of(stamp) % FE_WARP,
           other, line);
  return what;
}

static const char *under_way(size_t granule, const char *verb, const struct ft_granule *g,
                             char what[256]) {
  snprintf(what, 256,
           "%s shared memory at offset %zu, to which the asynchronous copy of line %d (warp %d, "
           "lane %d) is still under way: no wait orders it",
           verb, granule * FT_GRANULE, g->written_line, thread_of(g->writer) / FE_WARP,
           thread_of(g->writer) % FE_WARP);
  return what;
}

const char *ft_shared_read(struct ft_shared_memory *shared, int thread, uint32_t address, int bytes,
                           int line, char what[256]) {
  if (misplaced(shared, address, bytes, "reads", what)) return what;
  const uint32_t *const clock = clock_of(shared, thread);
  const uint32_t stamp = stamp_now(shared, thread);
  const size_t begin = (address - FE_SHARED_BASE) / FT_GRANULE;
  const size_t end = begin + (size_t)(bytes + FT_GRANULE - 1) / FT_GRANULE;
  uint32_t *reader = shared->readers + begin * (size_t)shared->warps + thread / FE_WARP;
  for (size_t n = begin; n < end; n++, reader += shared->warps) {
    struct ft_granule *const g = &shared->granules[n];
    if (g->pending) return under_way(n, "reads", g, what);
    if (!g->writer) {
      snprintf(what, 256, "reads shared memory at offset %zu, which was never written",
               n * FT_GRANULE);
      return what;
    }
    if (!is_before(g->writer, clock))
      return conflict(n, "reads", g->writer, "writes", g->written_line, what);
    g->read_line = (uint16_t)line;
    *reader = stamp;
  }
  return NULL;
}

/* Conflicts of a write, and its mark. */
static const char *take(struct ft_shared_memory *shared, int thread, uint32_t address, int bytes,
                        int line, bool pending, char what[256]) {
  if (misplaced(shared, address, bytes, "writes", what)) return what;
  const uint32_t *const clock = clock_of(shared, thread);
  const size_t begin = (address - FE_SHARED_BASE) / FT_GRANULE;
  const size_t end = begin + (size_t)(bytes + FT_GRANULE - 1) / FT_GRANULE;
  for (size_t n = begin; n < end; n++) {
    struct ft_granule *const g = &shared->granules[n];
    if (g->pending) return under_way(n, "writes", g, what);
    if (g->writer && !is_before(g->writer, clock))
      return conflict(n, "writes", g->writer, "writes", g->written_line, what);
    uint32_t *const readers = shared->readers + n * (size_t)shared->warps;
    for (int w = 0; w < shared->warps; w++) {
      if (readers[w] && !is_before(readers[w], clock))
        return conflict(n, "writes", readers[w], "reads", g->read_line, what);
      readers[w] = 0;
    }
    *g = (struct ft_granule){
        .writer = stamp_now(shared, thread), .written_line = (uint16_t)line, .pending = pending};
    shared->origins[n] = 0;
  }
  return NULL;
}

const char *ft_shared_write(struct ft_shared_memory *shared, int thread, uint32_t address,
                            int bytes, int line, char what[256]) {
  return take(shared, thread, address, bytes, line, false, what);
}

const char *ft_shared_begin_copy(struct ft_shared_memory *shared, int thread, uint32_t address,
                                 int bytes, int line, char what[256]) {
  return take(shared, thread, address, bytes, line, true, what);
}

void ft_shared_end_copy(struct ft_shared_memory *shared, int thread, uint32_t address, int bytes,
                        uint64_t origin, int line) {
  const size_t begin = (address - FE_SHARED_BASE) / FT_GRANULE;
  const size_t end = begin + (size_t)bytes / FT_GRANULE;
  for (size_t n = begin; n < end; n++) {
    shared->granules[n] =
        (struct ft_granule){.writer = stamp_now(shared, thread), .written_line = (uint16_t)line};
    shared->origins[n] = origin ? origin + (n - begin) * FT_GRANULE : 0;
  }
}

/* ---- order ---- */

/* What the threads know together becomes what each knows; then each begins a new time. */
void ft_shared_order(struct ft_shared_memory *shared, const int *threads, int count) {
  uint32_t joint[1 << THREAD_BITS] = {0};
  const size_t size = (size_t)shared->threads * sizeof *joint;
  for (int i = 0; i < count; i++) {
    const uint32_t *const clock = clock_of(shared, threads[i]);
    for (int t = 0; t < shared->threads; t++)
      if (clock[t] > joint[t]) joint[t] = clock[t];
  }
  for (int i = 0; i < count; i++) {
    uint32_t *const clock = clock_of(shared, threads[i]);
    memcpy(clock, joint, size);
    clock[threads[i]]++;
  }
}

void ft_shared_order_all(struct ft_shared_memory *shared) {
  uint32_t joint[1 << THREAD_BITS];
  for (int t = 0; t < shared->threads; t++) joint[t] = clock_of(shared, t)[t];
  for (int t = 0; t < shared->threads; t++) {
    uint32_t *const clock = clock_of(shared, t);
    memcpy(clock, joint, (size_t)shared->threads * sizeof *joint);
    clock[t]++;
  }
}
