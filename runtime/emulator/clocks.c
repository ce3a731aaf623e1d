/* clocks.c: vector clocks.
 * in -> out: meetings, releases, acquisitions, fences -> clocks.
 * A thread's time grows when it meets others or tells them something; at the end of time (2^19
 * meetings) it stands still, and races from there on may go unseen. */
#include "runtime/emulator/clocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/emulator/device/machine.h"

static void advance(struct ft_clocks *clocks, int thread) {
  uint32_t *const time = &ft_clock_of(clocks, thread)[thread];
  if (*time < (1u << (32 - FT_AGENT_BITS)) - 1) ++*time;
  clocks->changes[thread / FT_WARPGROUP]++;
}

int ft_clocks_make(struct ft_clocks *clocks, int blocks, int threads) {
  const int each = (threads + FT_WARPGROUP - 1) / FT_WARPGROUP * FT_WARPGROUP, all = blocks * each;
  *clocks = (struct ft_clocks){.blocks = blocks,
                               .block_agents = each,
                               .threads = all,
                               .stride = all + blocks * FT_AGENTS_BESIDE};
  clocks->clocks = calloc(((size_t)all + 1) * 2 * (size_t)clocks->stride, sizeof *clocks->clocks);
  return clocks->clocks ? FT_OK : ft_fail(FT_E_MEMORY, "no memory for %d clocks", all);
}

void ft_clocks_free(struct ft_clocks *clocks) {
  free(clocks->clocks);
  *clocks = (struct ft_clocks){0};
}

static size_t clock_bytes(const struct ft_clocks *clocks) {
  return 2 * (size_t)clocks->stride * sizeof *clocks->clocks;
}

/* What the agents there are may have written. */
static void clear_known(const struct ft_clocks *clocks, uint32_t *clock) {
  const size_t half = (size_t)clocks->agents * sizeof *clock;
  memset(clock, 0, half);
  if (clocks->fenced) memset(clock + clocks->stride, 0, half);
}

/* Memory that was never written to is not touched: a launch has more of it than it uses. */
void ft_clocks_reset(struct ft_clocks *clocks, unsigned first_block) {
  for (int t = 0; t < clocks->threads; t++) clear_known(clocks, ft_clock_of(clocks, t));
  clocks->agents = clocks->threads;
  clocks->first_block = first_block;
  clocks->fenced = false;
  for (int t = 0; t < clocks->threads; t++) advance(clocks, t);
}

int ft_clocks_agent(struct ft_clocks *clocks, int rank, enum ft_agent_kind kind, int number) {
  const int beside = clocks->agents - clocks->threads;
  if (beside == clocks->blocks * FT_AGENTS_BESIDE) return -1;
  clocks->beside[beside].kind = kind;
  clocks->beside[beside].rank = rank;
  clocks->beside[beside].number = number;
  return clocks->agents++;
}

uint32_t *ft_clock_make(const struct ft_clocks *clocks) {
  return calloc(1, clock_bytes(clocks));
}

void ft_clock_clear(const struct ft_clocks *clocks, uint32_t *clock) {
  memset(clock, 0, clock_bytes(clocks));
}

/* ---- the later and the earlier of many times ---- */

/* The vector instructions that every x86-64 has compare no numbers without a sign. */
#if defined(__x86_64__)
#define WIDE        __attribute__((target("avx2")))
#define CAN_BE_WIDE __builtin_cpu_supports("avx2")
#else
#define WIDE
#define CAN_BE_WIDE false
#endif
#define EVERYWHERE static inline __attribute__((always_inline))

EVERYWHERE void later(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  for (int a = 0; a < count; a++) to[a] = from[a] > to[a] ? from[a] : to[a];
}

EVERYWHERE void earlier(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  for (int a = 0; a < count; a++) to[a] = from[a] < to[a] ? from[a] : to[a];
}

WIDE static void later_wide(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  later(to, from, count);
}

WIDE static void earlier_wide(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  earlier(to, from, count);
}

static void join_half(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  if (CAN_BE_WIDE)
    later_wide(to, from, count);
  else
    later(to, from, count);
}

static void meet_half(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  if (CAN_BE_WIDE)
    earlier_wide(to, from, count);
  else
    earlier(to, from, count);
}

/* ---- joining ---- */

void ft_clock_join(const struct ft_clocks *clocks, uint32_t *to, const uint32_t *from) {
  join_half(to, from, clocks->agents);
  if (clocks->fenced) join_half(to + clocks->stride, from + clocks->stride, clocks->agents);
}

void ft_clocks_release(struct ft_clocks *clocks, int thread, uint32_t *into) {
  ft_clock_join(clocks, into, ft_clock_of(clocks, thread));
  advance(clocks, thread);
}

void ft_clocks_acquire(struct ft_clocks *clocks, int thread, const uint32_t *from) {
  ft_clock_join(clocks, ft_clock_of(clocks, thread), from);
  clocks->changes[thread / FT_WARPGROUP]++;
}

void ft_clocks_learn(struct ft_clocks *clocks, int thread, int agent, uint32_t time) {
  uint32_t *const known = &ft_clock_of(clocks, thread)[agent];
  if (*known < time) *known = time;
  clocks->changes[thread / FT_WARPGROUP]++;
}

/* What the thread writes next is not behind this fence. */
void ft_clocks_fence(struct ft_clocks *clocks, int thread) {
  uint32_t *const clock = ft_clock_of(clocks, thread);
  memcpy(clock + clocks->stride, clock, (size_t)clocks->agents * sizeof *clock);
  clocks->fenced = true;
  advance(clocks, thread);
}

/* ---- meetings ---- */

static void copy_clock(const struct ft_clocks *clocks, uint32_t *to, const uint32_t *from) {
  const size_t half = (size_t)clocks->agents * sizeof *to;
  memcpy(to, from, half);
  if (clocks->fenced) memcpy(to + clocks->stride, from + clocks->stride, half);
}

static uint32_t *empty_scratch(struct ft_clocks *clocks) {
  uint32_t *const scratch = ft_clock_of(clocks, clocks->threads);
  clear_known(clocks, scratch);
  return scratch;
}

/* Nobody knows of a later time of a thread than that thread itself. */
static void join_met(const struct ft_clocks *clocks, uint32_t *joint, int first, int count,
                     int thread) {
  const uint32_t *const clock = ft_clock_of(clocks, thread);
  const int end = first + count;
  joint[thread] = clock[thread];
  join_half(joint, clock, first);
  join_half(joint + end, clock + end, clocks->agents - end);
  if (clocks->fenced) join_half(joint + clocks->stride, clock + clocks->stride, clocks->agents);
}

void ft_clocks_order(struct ft_clocks *clocks, int first, int count) {
  uint32_t *const joint = empty_scratch(clocks);
  for (int t = first; t < first + count; t++) join_met(clocks, joint, first, count, t);
  for (int t = first; t < first + count; t++) {
    copy_clock(clocks, ft_clock_of(clocks, t), joint);
    advance(clocks, t);
  }
}

void ft_clocks_common(const struct ft_clocks *clocks, int first, int count, uint32_t *common) {
  memcpy(common, ft_clock_of(clocks, first), clock_bytes(clocks));
  for (int t = first + 1; t < first + count; t++) {
    const uint32_t *const clock = ft_clock_of(clocks, t);
    meet_half(common, clock, clocks->agents);
    if (clocks->fenced) meet_half(common + clocks->stride, clock + clocks->stride, clocks->agents);
  }
}

/* ---- words ---- */

const char *ft_agent_text(const struct ft_clocks *clocks, uint32_t stamp,
                          char text[FT_AGENT_WORDS]) {
  const int agent = ft_agent_of(stamp), beside = agent - clocks->threads;
  const bool thread = beside < 0;
  const int rank = thread ? agent / clocks->block_agents : clocks->beside[beside].rank;
  const int number = thread ? agent % clocks->block_agents : clocks->beside[beside].number;
  const unsigned place = clocks->first_block + (unsigned)rank;
  char block[24] = "", of_block[24] = "";
  if (clocks->blocks > 1) {
    snprintf(block, sizeof block, "block %u, ", place);
    snprintf(of_block, sizeof of_block, " of block %u", place);
  }
  if (thread) {
    snprintf(text, FT_AGENT_WORDS, "%swarp %d, lane %d", block, number / FE_WARP, number % FE_WARP);
    return text;
  }
  switch (clocks->beside[beside].kind) {
  case FT_PRODUCTS:
    snprintf(text, FT_AGENT_WORDS, "the wgmma of %swarpgroup %d", block, number);
    break;
  case FT_STORES:
    snprintf(text, FT_AGENT_WORDS, "the TMA store of %swarp %d, lane %d", block, number / FE_WARP,
             number % FE_WARP);
    break;
  case FT_LOADS:
    snprintf(text, FT_AGENT_WORDS, "the TMA load to the mbarrier at offset %d%s", number, of_block);
    break;
  }
  return text;
}
