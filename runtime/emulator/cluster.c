/* cluster.c: what the blocks of a cluster have to do with each other.
 * in -> out: turns, barrier.cluster, ends of threads and blocks, arrivals from other blocks -> the
 * kernel's shared array, threads released, bytes of another block; or what is wrong with who
 * reaches whom. A block's shared memory must be there for as long as other blocks use it. An
 * arrival of another block is a fault where the end of this block is not ordered behind it,
 * whichever of the two came first. */
#include "runtime/emulator/cluster.h"

#include <string.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/limits.h"
#include "runtime/emulator/shared_memory.h"

void ft_cluster_reset(struct ft_cluster *cluster, unsigned first_block) {
  ft_clocks_reset(&cluster->clocks, first_block);
  ft_clock_clear(&cluster->clocks, cluster->gathered);
  cluster->arrived = cluster->ended = 0;
}

void ft_cluster_turn_to(struct ft_block *block) {
  struct ft_block *const before = ft_block_now;
  if (block == before) return;
  ft_shared_move(&block->shared, &before->shared);
  *block->launch->kernel->machine = &block->machine;
  ft_block_now = block;
}

/* ---- barrier.cluster: all threads of the cluster that have not ended ---- */

static void open_if_complete(struct ft_cluster *cluster) {
  const int all = cluster->count * cluster->blocks[0].thread_count;
  if (cluster->arrived == 0 || cluster->arrived + cluster->ended < all) return;
  for (int rank = 0; rank < cluster->count; rank++) {
    struct ft_block *const block = &cluster->blocks[rank];
    for (int t = 0; t < block->thread_count; t++) {
      struct ft_thread *const thread = &block->threads[t];
      if (thread->waiting != FT_AT_CLUSTER) continue;
      ft_clocks_acquire(&cluster->clocks, thread->agent, cluster->gathered);
      ft_release(thread);
    }
  }
  cluster->arrived = 0;
  ft_clock_clear(&cluster->clocks, cluster->gathered);
}

void ft_cluster_barrier(struct ft_warp *warp, int line) {
  struct ft_cluster *const cluster = ft_block_now->cluster;
  for (int lane = 0; lane < FE_WARP; lane++) {
    ft_clocks_release(&cluster->clocks, warp->lanes[lane]->agent, cluster->gathered);
    ft_wait_at(warp->lanes[lane], FT_AT_CLUSTER, 0, line, NULL);
  }
  cluster->arrived += FE_WARP;
  open_if_complete(cluster);
}

void ft_cluster_thread_ends(const struct ft_thread *thread) {
  struct ft_cluster *const cluster = thread->block->cluster;
  cluster->ended++;
  open_if_complete(cluster);
}

/* ---- one block reaches another ---- */

struct ft_block *ft_cluster_block(unsigned rank, int line) {
  struct ft_cluster *const cluster = ft_block_now->cluster;
  char text[FT_BLOCK_WORDS];
  if (rank >= (unsigned)cluster->count)
    ft_fault(line, "reaches for rank %u of its cluster, which has %d block%s", rank, cluster->count,
             cluster->count == 1 ? "" : "s");
  struct ft_block *const there = &cluster->blocks[rank];
  if (there->ended)
    ft_fault(line, "reaches for shared memory of %s, which has ended: no cluster_sync keeps it",
             ft_block_text(there, text));
  return there;
}

static void note(struct ft_block *there, bool reads, int line) {
  const struct ft_block *const here = ft_block_now;
  const int agent = here->running->agent;
  if (there == here) return;
  there->arrivals[agent] = (struct ft_arrival){
      .stamp = ft_stamp_now(&here->cluster->clocks, agent), .line = line, .reads = reads};
}

void ft_cluster_note_arrival(struct ft_block *there, int line) {
  note(there, false, line);
}

void ft_cluster_read(void *to, uint32_t from, int bytes, unsigned rank, int line) {
  const struct ft_block *const here = ft_block_now;
  struct ft_block *const there = ft_cluster_block(rank, line);
  const int agent = here->running->agent;
  const struct ft_accessor by = {.clock = ft_clock_of(&here->cluster->clocks, agent),
                                 .stamp = ft_stamp_now(&here->cluster->clocks, agent),
                                 .slot = ft_slot_of_block(&there->shared, here->rank),
                                 .line = line};
  char what[256];
  ft_count_step(line);
  if (ft_shared_read_by(&there->shared, &by, from, bytes, what)) ft_fault(line, "%s", what);
  note(there, true, line);
  memcpy(to, ft_shared_at(&there->shared, from), (size_t)bytes);
}

static bool is_known(const struct ft_block *block, uint32_t stamp) {
  for (int t = 0; t < block->thread_count; t++)
    if (ft_is_before(stamp, ft_clock_of(block->shared.clocks, block->threads[t].agent)))
      return true;
  return false;
}

void ft_check_arrivals_done(struct ft_block *block) {
  const struct ft_clocks *const clocks = block->shared.clocks;
  char text[FT_BLOCK_WORDS];
  for (int agent = 0; agent < clocks->threads; agent++) {
    const struct ft_arrival *const arrival = &block->arrivals[agent];
    if (!arrival->stamp || is_known(block, arrival->stamp)) continue;
    struct ft_block *const there = &block->cluster->blocks[agent / clocks->block_agents];
    struct ft_thread *const thread = &there->threads[agent % clocks->block_agents];
    thread->line = arrival->line;
    ft_fault_outside(thread, "%s %s, which may have ended by then: no cluster_sync keeps it",
                     arrival->reads ? "reads shared memory of" : "arrives at an mbarrier of",
                     ft_block_text(block, text));
    return;
  }
}
