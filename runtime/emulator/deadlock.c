/* deadlock.c: where threads are, in words; who waits for whom when nobody can run.
 * in -> out: waiting threads -> the fault, with what the most telling of them waits for and where
 * the others are. */
#include "runtime/emulator/deadlock.h"

#include <stdio.h>
#include <string.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/warp_ops.h"
#include "runtime/emulator/warpgroup_ops.h"

enum { OTHERS_TOLD = 6 };

/* "waits for phase 1 of the mbarrier at offset 16, 1 arrival and 8192 bytes missing" */
static void say_mbarrier(const struct ft_thread *thread, char *text, size_t size) {
  const struct ft_mbarrier *const mbarrier = &thread->block->mbarriers[thread->what];
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
    say_mbarrier(thread, what, sizeof what);
    snprintf(text, FT_THREAD_WORDS, "in %s %s", line, what);
    break;
  case FT_AT_CLUSTER: snprintf(text, FT_THREAD_WORDS, "is at barrier.cluster in %s", line); break;
  }
  return text;
}

/* ---- nobody can run ---- */

static bool at_cluster(const struct ft_thread *thread) {
  return thread->waiting == FT_AT_CLUSTER ||
         (thread->waiting == FT_AT_WARP_OP && thread->what == FE_CLUSTER_SYNC);
}

static bool same_place(const struct ft_thread *a, const struct ft_thread *b) {
  const bool same_wait = a->waiting == b->waiting && a->what == b->what;
  return a->block == b->block && a->line == b->line &&
         (same_wait || (at_cluster(a) && at_cluster(b)));
}

/* The first lane that has not come where this thread waits: of its warp, warpgroup or block. */
static const struct ft_thread *missing(const struct ft_thread *thread) {
  const struct ft_block *const block = thread->block;
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
 * block that waits for bytes, and that more than one that waits for its cluster, or than a warp
 * that waits for a lane that waits for bytes. */
static int rank_of(const struct ft_thread *thread) {
  switch (thread->waiting) {
  case FT_AT_WARP_OP: return missing(thread)->waiting == FT_AT_MBARRIER ? 0 : 4;
  case FT_AT_WARPGROUP_OP: return 3;
  case FT_AT_BARRIER: return 2;
  case FT_AT_MBARRIER: return 1;
  default: return 0;
  }
}

static void say_stuck(const struct ft_thread *stuck, char *text, size_t size) {
  const struct ft_block *const block = stuck->block;
  const struct ft_thread *const absent = missing(stuck);
  const struct ft_barrier *const barrier = &block->barriers[stuck->what % FT_BARRIERS];
  const struct ft_warpgroup *const group = block->warpgroups + stuck->number / FT_WARPGROUP;
  char other[FT_THREAD_WORDS];
  ft_thread_text(absent, other);
  if (stuck->waiting == FT_AT_MBARRIER)
    say_mbarrier(stuck, text, size);
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

/* "warp 4, lane 0 and 127 more", with "block 5, " ahead in a cluster of several */
static void say_who(const struct ft_thread *thread, char *text, size_t size) {
  const struct ft_block *const block = thread->block;
  char ahead[24] = "", with[24] = "";
  int more = 0;
  for (int t = thread->number + 1; t < block->thread_count; t++)
    more += same_place(&block->threads[t], thread);
  if (block->cluster->count > 1)
    snprintf(ahead, sizeof ahead, "block %u, ", block->machine.here.block.x);
  if (more > 0) snprintf(with, sizeof with, " and %d more", more);
  snprintf(text, size, "%swarp %d, lane %d%s", ahead, thread->number / FE_WARP, ft_lane_of(thread),
           with);
}

static const struct ft_thread *thread_at(const struct ft_cluster *cluster, int index) {
  const int each = cluster->blocks[0].thread_count;
  return &cluster->blocks[index / each].threads[index % each];
}

static int threads_of(const struct ft_cluster *cluster) {
  return cluster->count * cluster->blocks[0].thread_count;
}

/* "; warp 4, lane 0 and 127 more: ..." for each place where others wait. */
static void say_others(const struct ft_cluster *cluster, const struct ft_thread *stuck, char *text,
                       size_t size) {
  const struct ft_thread *told[OTHERS_TOLD + 1] = {stuck};
  size_t length = 0;
  for (int t = 0, count = 1; t < threads_of(cluster) && count <= OTHERS_TOLD; t++) {
    const struct ft_thread *const thread = thread_at(cluster, t);
    bool known = thread->waiting == FT_ENDED && !(thread->block->ended && thread->number == 0);
    for (int i = 0; i < count; i++) known = known || same_place(told[i], thread);
    if (known) continue;
    told[count++] = thread;
    char who[64], where[FT_THREAD_WORDS];
    say_who(thread, who, sizeof who);
    length += (size_t)snprintf(text + length, size - length, "; %s: %s", who,
                               ft_thread_text(thread, where));
    if (length >= size) return;
  }
}

void ft_tell_deadlock(const struct ft_cluster *cluster) {
  const struct ft_thread *stuck = thread_at(cluster, 0);
  char text[512], others[1024] = "";
  bool plain = true;
  for (int t = 0; t < threads_of(cluster); t++) {
    const struct ft_thread *const thread = thread_at(cluster, t);
    if (rank_of(thread) > rank_of(stuck)) stuck = thread;
    if (thread->waiting == FT_AT_MBARRIER || thread->waiting == FT_AT_WARPGROUP_OP ||
        thread->waiting == FT_AT_CLUSTER)
      plain = false;
    if (thread->waiting == FT_AT_BARRIER && thread->what != 0) plain = false;
  }
  say_stuck(stuck, text, sizeof text);
  if (!plain) say_others(cluster, stuck, others, sizeof others);
  ft_fault_outside(stuck, "%s%s", text, others);
}
