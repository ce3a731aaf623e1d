/* deadlock.c: where threads are, in words; who waits for whom when nobody can run.
 * in -> out: waiting threads -> the fault, with what the most telling of them waits for and where
 * the others are. */
#include <stdio.h>
#include <string.h>

#include "runtime/emulator/block.h"

enum { OTHERS_TOLD = 4 };

/* "waits for phase 1 of the mbarrier at offset 16, 1 arrival and 8192 bytes missing" */
static void say_mbarrier(int number, char *text, size_t size) {
  const struct ft_mbarrier *const mbarrier = &ft_block_now->mbarriers[number];
  const long long bytes = mbarrier->expected - mbarrier->queued;
  snprintf(text, size,
           "waits for phase %u of the mbarrier at offset %u, %d arrival%s and %lld bytes missing",
           mbarrier->phase, mbarrier->address - FE_SHARED_BASE, mbarrier->missing,
           mbarrier->missing == 1 ? "" : "s", bytes > 0 ? bytes : 0);
}

const char *ft_thread_text(const struct ft_thread *thread, char text[FT_THREAD_WORDS]) {
  char line[96], what[128];
  ft_line_text(thread->line, line);
  switch (thread->waiting) {
  case FT_RUNNING: snprintf(text, FT_THREAD_WORDS, "still runs"); break;
  case FT_ENDED: snprintf(text, FT_THREAD_WORDS, "has ended"); break;
  case FT_AT_WARP_OP:
    snprintf(text, FT_THREAD_WORDS, "is at %s in %s", ft_warp_op_names[thread->what], line);
    break;
  case FT_AT_WARPGROUP_OP:
    snprintf(text, FT_THREAD_WORDS, "is at %s in %s", ft_warpgroup_op_names[thread->what], line);
    break;
  case FT_AT_BARRIER:
    snprintf(text, FT_THREAD_WORDS, "is at barrier %d in %s", thread->what, line);
    break;
  case FT_AT_MBARRIER:
    say_mbarrier(thread->what, what, sizeof what);
    snprintf(text, FT_THREAD_WORDS, "in %s %s", line, what);
    break;
  }
  return text;
}

/* ---- nobody can run ---- */

static bool same_place(const struct ft_thread *a, const struct ft_thread *b) {
  return a->waiting == b->waiting && a->what == b->what && a->line == b->line;
}

/* The first lane that has not come where this thread waits: of its warp, warpgroup or block. */
static const struct ft_thread *missing(const struct ft_block *block,
                                       const struct ft_thread *thread) {
  const int whole = thread->waiting == FT_AT_WARP_OP        ? FE_WARP
                    : thread->waiting == FT_AT_WARPGROUP_OP ? FT_WARPGROUP
                                                            : block->thread_count;
  for (int t = 0; t < block->thread_count; t++) {
    const struct ft_thread *const other = &block->threads[t];
    if (other->number / whole != thread->number / whole) continue;
    if (other->waiting != thread->waiting || other->what != thread->what) return other;
  }
  return thread;
}

/* A lane its warp waits for tells more than a warp that waits for the block, and that more than a
 * block that waits for bytes. */
static int rank_of(const struct ft_thread *thread) {
  switch (thread->waiting) {
  case FT_AT_WARP_OP: return 4;
  case FT_AT_WARPGROUP_OP: return 3;
  case FT_AT_BARRIER: return 2;
  case FT_AT_MBARRIER: return 1;
  default: return 0;
  }
}

static void say_stuck(const struct ft_block *block, const struct ft_thread *stuck, char *text,
                      size_t size) {
  const struct ft_thread *const absent = missing(block, stuck);
  const struct ft_barrier *const barrier = &block->barriers[stuck->what % FT_BARRIERS];
  const struct ft_warpgroup *const group = block->warpgroups + stuck->number / FT_WARPGROUP;
  char other[FT_THREAD_WORDS];
  ft_thread_text(absent, other);
  if (stuck->waiting == FT_AT_MBARRIER)
    say_mbarrier(stuck->what, text, size);
  else if (stuck->waiting == FT_AT_WARP_OP)
    snprintf(text, size, "waits at %s for its warp, but lane %d %s", ft_warp_op_names[stuck->what],
             ft_lane_of(absent), other);
  else if (stuck->waiting == FT_AT_WARPGROUP_OP && group->claim)
    snprintf(text, size, "waits for %d registers a thread, %d more than the block has left",
             group->claim, group->claim - group->registers - block->registers_left);
  else if (stuck->waiting == FT_AT_WARPGROUP_OP)
    snprintf(text, size, "waits at %s for its warpgroup, but warp %d, lane %d %s",
             ft_warpgroup_op_names[stuck->what], absent->number / FE_WARP, ft_lane_of(absent),
             other);
  else if (stuck->what == 0)
    snprintf(text, size, "waits at barrier 0, but warp %d, lane %d %s", absent->number / FE_WARP,
             ft_lane_of(absent), other);
  else
    snprintf(text, size, "waits at barrier %d for %d threads, of which %d have come", stuck->what,
             barrier->expected, barrier->arrived);
}

/* "; warp 4, lane 0 and 127 more: ..." for each place where others wait. */
static void say_others(const struct ft_block *block, const struct ft_thread *stuck, char *text,
                       size_t size) {
  const struct ft_thread *told[OTHERS_TOLD + 1] = {stuck};
  size_t length = 0;
  for (int t = 0, count = 1; t < block->thread_count && count <= OTHERS_TOLD; t++) {
    const struct ft_thread *const thread = &block->threads[t];
    bool known = thread->waiting == FT_ENDED;
    for (int i = 0; i < count; i++) known = known || same_place(told[i], thread);
    if (known) continue;
    told[count++] = thread;
    int more = 0;
    for (int u = t + 1; u < block->thread_count; u++)
      more += same_place(&block->threads[u], thread);
    char where[FT_THREAD_WORDS], with[32] = "";
    if (more > 0) snprintf(with, sizeof with, " and %d more", more);
    length += (size_t)snprintf(text + length, size - length, "; warp %d, lane %d%s: %s",
                               t / FE_WARP, t % FE_WARP, with, ft_thread_text(thread, where));
    if (length >= size) return;
  }
}

void ft_tell_deadlock(const struct ft_block *block) {
  const struct ft_thread *stuck = &block->threads[0];
  char text[512], others[512] = "";
  bool plain = true;
  for (int t = 0; t < block->thread_count; t++) {
    const struct ft_thread *const thread = &block->threads[t];
    if (rank_of(thread) > rank_of(stuck)) stuck = thread;
    if (thread->waiting == FT_AT_MBARRIER || thread->waiting == FT_AT_WARPGROUP_OP) plain = false;
    if (thread->waiting == FT_AT_BARRIER && thread->what != 0) plain = false;
  }
  say_stuck(block, stuck, text, sizeof text);
  if (!plain) say_others(block, stuck, others, sizeof others);
  ft_fault_outside(stuck, "%s%s", text, others);
}
