/* named_barriers.c: bar.sync, bar.red and bar.arrive, which warps come to as a whole.
 * in -> out: warps, how many threads there are to be -> those released that wait, ordered behind
 * all who have come. */
#include "runtime/emulator/named_barriers.h"

#include <stdlib.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/limits.h"

static void check(const struct ft_warp *warp, const struct ft_barrier *barrier,
                  const struct fe_barrier *record, int line) {
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct fe_barrier *const other = warp->lanes[lane]->record;
    if (other->id != record->id || other->threads != record->threads)
      ft_fault_lane(warp->lanes[lane], line,
                    "names barrier %d for %d threads, lane 0 of its warp barrier %d for %d",
                    other->id, other->threads, record->id, record->threads);
  }
  const int most = ft_block_now->thread_count;
  if (record->threads < FE_WARP || record->threads > most || record->threads % FE_WARP != 0)
    ft_fault(line, "names barrier %d for %d threads; allowed: multiples of %d up to the block's %d",
             record->id, record->threads, FE_WARP, most);
  if (barrier->arrived > 0 && barrier->expected != record->threads)
    ft_fault(line, "comes to barrier %d for %d threads, others have come for %d", record->id,
             record->threads, barrier->expected);
  const int number = warp->lanes[0]->number / FE_WARP;
  if (barrier->warps >> number & 1)
    ft_fault(line, "comes to barrier %d once more before the others: %d of %d threads have come",
             record->id, barrier->arrived, barrier->expected);
}

static void open_barrier(struct ft_block *block, struct ft_barrier *barrier, int id) {
  for (int t = 0; t < block->thread_count; t++) {
    struct ft_thread *const thread = &block->threads[t];
    if (thread->waiting != FT_AT_BARRIER || thread->what != id) continue;
    ft_clocks_acquire(block->shared.clocks, thread->agent, barrier->gathered);
    ((struct fe_barrier *)thread->record)->agrees = barrier->all_agree;
    ft_release(thread);
  }
  barrier->arrived = 0;
  barrier->warps = 0;
  ft_clock_clear(block->shared.clocks, barrier->gathered);
}

void ft_named_barrier(struct ft_warp *warp, bool waits, int line) {
  struct ft_block *const block = ft_block_now;
  const struct fe_barrier record = *(const struct fe_barrier *)warp->lanes[0]->record;
  if (record.id < 1 || record.id >= FT_BARRIERS)
    ft_fault(line, "names barrier %d; allowed: 1 to %d", record.id, FT_BARRIERS - 1);
  struct ft_barrier *const barrier = &block->barriers[record.id];
  check(warp, barrier, &record, line);
  if (!barrier->gathered) barrier->gathered = ft_need(ft_clock_make(block->shared.clocks));
  if (barrier->arrived == 0) barrier->all_agree = true;
  for (int lane = 0; lane < FE_WARP; lane++) {
    struct ft_thread *const thread = warp->lanes[lane];
    if (!((const struct fe_barrier *)thread->record)->agrees) barrier->all_agree = false;
    ft_clocks_release(block->shared.clocks, thread->agent, barrier->gathered);
    if (waits) ft_wait_at(thread, FT_AT_BARRIER, record.id, line, thread->record);
  }
  barrier->expected = record.threads;
  barrier->warps |= 1u << warp->lanes[0]->number / FE_WARP;
  barrier->arrived += FE_WARP;
  if (barrier->arrived == barrier->expected) open_barrier(block, barrier, record.id);
}

void ft_barriers_reset(struct ft_block *block) {
  for (int id = 0; id < FT_BARRIERS; id++) {
    struct ft_barrier *const barrier = &block->barriers[id];
    barrier->arrived = 0;
    barrier->warps = 0;
    if (barrier->gathered) ft_clock_clear(block->shared.clocks, barrier->gathered);
  }
}

void ft_barriers_free(struct ft_block *block) {
  for (int id = 0; id < FT_BARRIERS; id++) free(block->barriers[id].gathered);
}
