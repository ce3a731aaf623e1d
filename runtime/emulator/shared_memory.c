/* shared_memory.c: shared memory under watch.
 * in -> out: accesses -> granules; what is wrong. */
#include "runtime/emulator/shared_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/emulator/device/machine.h"

enum { NOISE = 0xCB };

int ft_shared_make(struct ft_shared_memory *shared, unsigned char *bytes, uint32_t size,
                   int threads, struct ft_clocks *clocks, int rank, bool sees_plain) {
  const size_t granules = size / FT_GRANULE + 1;
  *shared = (struct ft_shared_memory){.bytes = bytes,
                                      .size = size,
                                      .first_agent = rank * clocks->block_agents,
                                      .sees_plain = sees_plain,
                                      .clocks = clocks};
  shared->warps = (threads + FE_WARP - 1) / FE_WARP;
  shared->slots = shared->warps + threads / FT_WARPGROUP + 1 + clocks->blocks;
  shared->granules = calloc(granules, sizeof *shared->granules);
  shared->readers = calloc(granules * (size_t)shared->slots, sizeof *shared->readers);
  shared->origins = calloc(granules, sizeof *shared->origins);
  if (clocks->blocks > 1) shared->kept = malloc((size_t)size + 1);
  if (rank > 0) shared->bytes = shared->kept;
  if (shared->granules && shared->readers && shared->origins &&
      (clocks->blocks == 1 || shared->kept))
    return FT_OK;
  ft_shared_free(shared);
  return ft_fail(FT_E_MEMORY, "no memory to watch %u bytes of shared memory", size);
}

void ft_shared_free(struct ft_shared_memory *shared) {
  free(shared->granules);
  free(shared->readers);
  free(shared->origins);
  free(shared->kept);
  *shared = (struct ft_shared_memory){0};
}

void ft_shared_reset(struct ft_shared_memory *shared) {
  const size_t granules = shared->size / FT_GRANULE;
  memset(shared->bytes, NOISE, shared->size);
  memset(shared->granules, 0, granules * sizeof *shared->granules);
  memset(shared->origins, 0, granules * sizeof *shared->origins);
}

void ft_shared_move(struct ft_shared_memory *in, struct ft_shared_memory *out) {
  unsigned char *const array = out->bytes;
  out->bytes = memcpy(out->kept, array, out->size);
  in->bytes = memcpy(array, in->kept, in->size);
}

unsigned char *ft_shared_at(const struct ft_shared_memory *shared, uint32_t address) {
  return shared->bytes + (address - FE_SHARED_BASE);
}

uint64_t ft_shared_origin(const struct ft_shared_memory *shared, uint32_t address) {
  const uint32_t offset = address - FE_SHARED_BASE;
  const uint64_t origin = shared->origins[offset / FT_GRANULE];
  return origin ? origin + offset % FT_GRANULE : 0;
}

struct ft_accessor ft_shared_thread(const struct ft_shared_memory *shared, int thread, int line) {
  const int agent = shared->first_agent + thread;
  return (struct ft_accessor){.clock = ft_clock_of(shared->clocks, agent),
                              .stamp = ft_stamp_now(shared->clocks, agent),
                              .slot = thread / FE_WARP,
                              .line = line};
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

static const char *conflict(const struct ft_shared_memory *shared, size_t granule, const char *verb,
                            uint32_t stamp, const char *other, int line, char what[256]) {
  char text[FT_AGENT_WORDS];
  const bool thread = ft_agent_of(stamp) < shared->clocks->threads;
  snprintf(what, 256, "%s shared memory at offset %zu, which %s %s in line %d, and %s (race)", verb,
           granule * FT_GRANULE, ft_agent_text(shared->clocks, stamp, text), other, line,
           thread ? "nothing orders the two" : "no wait for that orders the two");
  return what;
}

/* Bytes that nobody may touch. */
static const char *taken(const struct ft_shared_memory *shared, size_t granule, const char *verb,
                         char what[256]) {
  const struct ft_granule *const g = &shared->granules[granule];
  const size_t offset = granule * FT_GRANULE;
  const bool copy = ft_agent_of(g->writer) < shared->clocks->threads;
  char text[FT_AGENT_WORDS];
  if (g->use == FT_MBARRIER)
    snprintf(what, 256, "%s shared memory at offset %zu, where the mbarrier of line %d is", verb,
             offset, g->written_line);
  else
    snprintf(what, 256,
             "%s shared memory at offset %zu, to which the %s of line %d (%s) is still under way: "
             "no wait orders it",
             verb, offset, copy ? "asynchronous copy" : "TMA load", g->written_line,
             copy ? ft_agent_text(shared->clocks, g->writer, text)
                  : ft_agent_text(shared->clocks, g->writer, text) + strlen("the TMA load "));
  return what;
}

static const char *unfenced(const struct ft_shared_memory *shared, size_t granule, const char *verb,
                            char what[256]) {
  const struct ft_granule *const g = &shared->granules[granule];
  char text[FT_AGENT_WORDS];
  snprintf(what, 256,
           "%s, by the asynchronous proxy, shared memory at offset %zu, which %s writes by an "
           "ordinary store in line %d: no fence.proxy.async is between the two",
           verb, granule * FT_GRANULE, ft_agent_text(shared->clocks, g->writer, text),
           g->written_line);
  return what;
}

static const char *unwritten(size_t granule, const char *verb, char what[256]) {
  snprintf(what, 256, "%s shared memory at offset %zu, which was never written", verb,
           granule * FT_GRANULE);
  return what;
}

/* ---- accesses ---- */

const char *ft_shared_read_by(struct ft_shared_memory *shared, const struct ft_accessor *by,
                              uint32_t address, int bytes, char what[256]) {
  if (misplaced(shared, address, bytes, "reads", what)) return what;
  const size_t begin = (address - FE_SHARED_BASE) / FT_GRANULE;
  const size_t end = begin + (size_t)(bytes + FT_GRANULE - 1) / FT_GRANULE;
  uint32_t *reader = shared->readers + begin * (size_t)shared->slots + by->slot;
  for (size_t n = begin; n < end; n++, reader += shared->slots) {
    struct ft_granule *const g = &shared->granules[n];
    if (g->use != FT_PLAIN) return taken(shared, n, "reads", what);
    if (!g->writer) return unwritten(n, "reads", what);
    if (!ft_is_before(g->writer, by->clock))
      return conflict(shared, n, "reads", g->writer, "writes", g->written_line, what);
    if (by->async && !ft_is_fenced(shared->clocks, g->writer, by->clock))
      return unfenced(shared, n, "reads", what);
    g->read_line = (uint16_t)by->line;
    g->readers |= UINT64_C(1) << by->slot;
    *reader = by->stamp;
  }
  return NULL;
}

/* Who read the granule and may still do so. */
static const char *read_meanwhile(const struct ft_shared_memory *shared, size_t granule,
                                  const uint32_t *clock, char what[256]) {
  const struct ft_granule *const g = &shared->granules[granule];
  const uint32_t *const readers = shared->readers + granule * (size_t)shared->slots;
  for (uint64_t left = g->readers; left; left &= left - 1) {
    const uint32_t stamp = readers[__builtin_ctzll(left)];
    if (!ft_is_before(stamp, clock))
      return conflict(shared, granule, "writes", stamp, "reads", g->read_line, what);
  }
  return NULL;
}

const char *ft_shared_write_by(struct ft_shared_memory *shared, const struct ft_accessor *by,
                               uint32_t address, int bytes, enum ft_granule_use use,
                               char what[256]) {
  if (misplaced(shared, address, bytes, "writes", what)) return what;
  const size_t begin = (address - FE_SHARED_BASE) / FT_GRANULE;
  const size_t end = begin + (size_t)(bytes + FT_GRANULE - 1) / FT_GRANULE;
  for (size_t n = begin; n < end; n++) {
    struct ft_granule *const g = &shared->granules[n];
    if (g->use != FT_PLAIN) return taken(shared, n, "writes", what);
    if (by->atomic && shared->sees_plain && !g->writer) return unwritten(n, "updates", what);
    const bool in_turns = by->atomic && g->atomic;
    if (g->writer && !in_turns && !ft_is_before(g->writer, by->clock))
      return conflict(shared, n, "writes", g->writer, "writes", g->written_line, what);
    if (g->readers && read_meanwhile(shared, n, by->clock, what)) return what;
    if (by->async && g->writer && !ft_is_fenced(shared->clocks, g->writer, by->clock))
      return unfenced(shared, n, "writes", what);
    *g = (struct ft_granule){
        .writer = by->stamp, .written_line = (uint16_t)by->line, .use = use, .atomic = by->atomic};
    shared->origins[n] = 0;
  }
  return NULL;
}

const char *ft_shared_read(struct ft_shared_memory *shared, int thread, uint32_t address, int bytes,
                           int line, char what[256]) {
  const struct ft_accessor by = ft_shared_thread(shared, thread, line);
  return ft_shared_read_by(shared, &by, address, bytes, what);
}

const char *ft_shared_write(struct ft_shared_memory *shared, int thread, uint32_t address,
                            int bytes, int line, char what[256]) {
  const struct ft_accessor by = ft_shared_thread(shared, thread, line);
  return ft_shared_write_by(shared, &by, address, bytes, FT_PLAIN, what);
}

const char *ft_shared_update(struct ft_shared_memory *shared, int thread, uint32_t address,
                             int bytes, int line, char what[256]) {
  struct ft_accessor by = ft_shared_thread(shared, thread, line);
  by.atomic = true;
  return ft_shared_write_by(shared, &by, address, bytes, FT_PLAIN, what);
}

void ft_shared_landed(struct ft_shared_memory *shared, uint32_t address, int bytes, uint32_t stamp,
                      uint64_t origin) {
  const size_t begin = (address - FE_SHARED_BASE) / FT_GRANULE;
  const size_t end = begin + (size_t)bytes / FT_GRANULE;
  for (size_t n = begin; n < end; n++) {
    if (stamp) shared->granules[n].writer = stamp;
    shared->granules[n].use = FT_PLAIN;
    shared->origins[n] = origin ? origin + (n - begin) * FT_GRANULE : 0;
  }
}
