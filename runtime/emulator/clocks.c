/* clocks.c: vector clocks.
 * in -> out: meetings, releases, acquisitions, fences -> clocks.
 * A thread's time grows when it meets others or tells them something; at the end of time (2^21
 * meetings) it stands still, and races from there on may go unseen. */
#include "runtime/emulator/clocks.h"

#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

static void advance(struct ft_clocks *clocks, int thread) {
  uint32_t *const time = &ft_clock_of(clocks, thread)[thread];
  if (*time < (1u << (32 - FT_AGENT_BITS)) - 1) ++*time;
  clocks->changes[thread / FT_WARPGROUP]++;
}

int ft_clocks_make(struct ft_clocks *clocks, int threads) {
  *clocks = (struct ft_clocks){.threads = threads, .stride = threads + FT_AGENTS_BESIDE};
  clocks->clocks =
      calloc(((size_t)threads + 1) * 2 * (size_t)clocks->stride, sizeof *clocks->clocks);
  return clocks->clocks ? FT_OK : ft_fail(FT_E_MEMORY, "no memory for %d clocks", threads);
}

void ft_clocks_free(struct ft_clocks *clocks) {
  free(clocks->clocks);
  *clocks = (struct ft_clocks){0};
}

static size_t clock_bytes(const struct ft_clocks *clocks) {
  return 2 * (size_t)clocks->stride * sizeof *clocks->clocks;
}

void ft_clocks_reset(struct ft_clocks *clocks) {
  memset(clocks->clocks, 0, (size_t)clocks->threads * clock_bytes(clocks));
  clocks->agents = clocks->threads;
  clocks->fenced = false;
  for (int t = 0; t < clocks->threads; t++) advance(clocks, t);
}

int ft_clocks_agent(struct ft_clocks *clocks, enum ft_agent_kind kind, int number) {
  const int beside = clocks->agents - clocks->threads;
  if (beside == FT_AGENTS_BESIDE) return -1;
  clocks->beside[beside].kind = kind;
  clocks->beside[beside].number = number;
  return clocks->agents++;
}

uint32_t *ft_clock_make(const struct ft_clocks *clocks) {
  return calloc(1, clock_bytes(clocks));
}

void ft_clock_clear(const struct ft_clocks *clocks, uint32_t *clock) {
  memset(clock, 0, clock_bytes(clocks));
}

/* ---- joining ---- */

static void join_half(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  for (int a = 0; a < count; a++) to[a] = from[a] > to[a] ? from[a] : to[a];
}

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
  ft_clock_clear(clocks, scratch);
  return scratch;
}

void ft_clocks_order(struct ft_clocks *clocks, const int *threads, int count) {
  uint32_t *const joint = empty_scratch(clocks);
  for (int i = 0; i < count; i++) ft_clock_join(clocks, joint, ft_clock_of(clocks, threads[i]));
  for (int i = 0; i < count; i++) {
    copy_clock(clocks, ft_clock_of(clocks, threads[i]), joint);
    advance(clocks, threads[i]);
  }
}

/* Nobody knows of a later time of a thread than that thread itself. */
void ft_clocks_order_all(struct ft_clocks *clocks) {
  const int threads = clocks->threads, beside = clocks->agents - threads;
  uint32_t *const joint = empty_scratch(clocks);
  for (int t = 0; t < threads; t++) {
    const uint32_t *const clock = ft_clock_of(clocks, t);
    joint[t] = clock[t];
    join_half(joint + threads, clock + threads, beside);
    if (clocks->fenced) join_half(joint + clocks->stride, clock + clocks->stride, clocks->agents);
  }
  for (int t = 0; t < threads; t++) {
    copy_clock(clocks, ft_clock_of(clocks, t), joint);
    advance(clocks, t);
  }
}

static void meet_half(uint32_t *restrict to, const uint32_t *restrict from, int count) {
  for (int a = 0; a < count; a++) to[a] = from[a] < to[a] ? from[a] : to[a];
}

void ft_clocks_common(const struct ft_clocks *clocks, int first, int count, uint32_t *common) {
  memcpy(common, ft_clock_of(clocks, first), clock_bytes(clocks));
  for (int t = first + 1; t < first + count; t++) {
    const uint32_t *const clock = ft_clock_of(clocks, t);
    meet_half(common, clock, clocks->agents);
    if (clocks->fenced) meet_half(common + clocks->stride, clock + clocks->stride, clocks->agents);
  }
}
