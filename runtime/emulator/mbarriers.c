/* mbarriers.c: mbarrier objects and the TMA loads they wait for, of one block or by multicast.
 * in -> out: inits, arrivals, expected bytes, loads, waits -> phases; threads released, bytes in
 * shared memory.
 * A phase completes when its arrivals are in and its bytes are there (PTX manual, "Phase of the
 * mbarrier object"). Loads land as late as they may: when somebody waits for a phase that lacks
 * nothing else. What an arriving thread knew is known to all who have waited for the phase. Other
 * blocks of the cluster may arrive and load, too: `there` is the block that has the mbarrier. */
#include "runtime/emulator/mbarriers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/cluster.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/fiber.h"
#include "runtime/emulator/grid.h"
#include "runtime/emulator/limits.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_map.h"

enum { BYTES_MOST = (1 << 20) - 1, ARRIVALS_MOST = (1 << 20) - 1 };

static int offset_of(const struct ft_mbarrier *mbarrier) {
  return (int)(mbarrier->address - FE_SHARED_BASE);
}

/* "the mbarrier at offset 16"; "... of block 5" where those of block `here` speak of it. */
enum { NAME = 64 };
static const char *name_of(const struct ft_block *there, uint32_t address,
                           const struct ft_block *here, char text[NAME]) {
  const long long offset = (long long)address - FE_SHARED_BASE;
  if (there == here)
    snprintf(text, NAME, "the mbarrier at offset %lld", offset);
  else
    snprintf(text, NAME, "the mbarrier at offset %lld of block %u", offset,
             there->machine.here.block.x);
  return text;
}

static const uint32_t *clock_now(void) {
  return ft_clock_of(ft_block_now->shared.clocks, ft_block_now->running->agent);
}

/* ---- making ---- */

static struct ft_mbarrier *make(struct ft_block *block, uint32_t address, int line) {
  const struct ft_clocks *const clocks = block->shared.clocks;
  if (block->mbarrier_count == FT_MBARRIERS)
    ft_fault(line, "makes one mbarrier more than the %d that are emulated", FT_MBARRIERS);
  struct ft_mbarrier *const mbarrier = &block->mbarriers[block->mbarrier_count++];
  uint32_t *const gathered =
      ft_need(mbarrier->gathered ? mbarrier->gathered : ft_clock_make(clocks));
  uint32_t *const released =
      ft_need(mbarrier->released ? mbarrier->released : ft_clock_make(clocks));
  *mbarrier = (struct ft_mbarrier){.address = address, .gathered = gathered, .released = released};
  ft_clock_clear(clocks, gathered);
  ft_clock_clear(clocks, released);
  mbarrier->agent =
      ft_clocks_agent(block->shared.clocks, block->rank, FT_LOADS, offset_of(mbarrier));
  if (mbarrier->agent < 0) ft_fault(line, "has more mbarriers and stores than are emulated");
  return mbarrier;
}

void ft_mbarrier_init(uint32_t address, int arrivals, int line) {
  struct ft_block *const block = ft_block_now;
  const struct ft_accessor by = ft_shared_thread(&block->shared, block->running->number, line);
  char what[256];
  if (arrivals < 1 || arrivals > ARRIVALS_MOST)
    ft_fault(line, "makes an mbarrier for %d arrivals; allowed: 1 to %d", arrivals, ARRIVALS_MOST);
  if (ft_shared_write_by(&block->shared, &by, address, FT_MBARRIER_BYTES, FT_MBARRIER, what))
    ft_fault(line, "%s", what);
  struct ft_mbarrier *const mbarrier = make(block, address, line);
  mbarrier->count = mbarrier->missing = arrivals;
  mbarrier->init_stamp = by.stamp;
  mbarrier->init_line = line;
}

/* What this thread is behind of, TMA knows from now on. */
static void announce(struct ft_block *block) {
  for (int n = 0; n < block->mbarrier_count; n++) {
    struct ft_mbarrier *const mbarrier = &block->mbarriers[n];
    if (!mbarrier->announced && ft_is_before(mbarrier->init_stamp, clock_now()))
      mbarrier->announced = ft_stamp_now(block->shared.clocks, block->running->agent);
  }
}

void ft_mbarrier_init_fence(int line) {
  (void)line;
  announce(ft_block_now);
}

void ft_async_proxy_fence(int line) {
  (void)line;
  announce(ft_block_now);
  ft_clocks_fence(ft_block_now->shared.clocks, ft_block_now->running->agent);
}

static struct ft_mbarrier *find(struct ft_block *there, uint32_t address, int line) {
  char name[NAME], who[FT_AGENT_WORDS];
  for (int n = 0; n < there->mbarrier_count; n++) {
    struct ft_mbarrier *const mbarrier = &there->mbarriers[n];
    if (mbarrier->address != address) continue;
    if (!ft_is_before(mbarrier->init_stamp, clock_now()))
      ft_fault(line, "uses %s, which %s makes in line %d, and nothing orders the two (race)",
               name_of(there, address, ft_block_now, name),
               ft_agent_text(there->shared.clocks, mbarrier->init_stamp, who), mbarrier->init_line);
    return mbarrier;
  }
  ft_fault(line, "uses an%s, where none was made",
           name_of(there, address, ft_block_now, name) + strlen("the"));
}

/* ---- loads ---- */

/* source: the shared memory that the bytes come from; NULL: they come from global memory. */
static void land(struct ft_shared_memory *shared, const struct ft_box *box,
                 const struct ft_shared_memory *source) {
  for (int number = 0; number < box->rows; number++) {
    const struct ft_box_row row = ft_box_row(box, number);
    for (int byte = 0; byte < box->row_bytes; byte += FT_CHUNK) {
      const uint32_t to = ft_box_chunk(box, &row, byte);
      const int first = row.first > byte ? row.first : byte;
      const int end = row.end < byte + FT_CHUNK ? row.end : byte + FT_CHUNK;
      const uint64_t from = row.global + (uint64_t)(first - row.first);
      const void *const there = source ? ft_shared_at(source, (uint32_t)from) : (void *)from;
      unsigned char *const bytes = ft_shared_at(shared, to);
      memset(bytes, 0, FT_CHUNK);
      if (end > first) memcpy(bytes + (first - byte), there, (size_t)(end - first));
      ft_shared_landed(shared, to, FT_CHUNK, 0, !source && end - first == FT_CHUNK ? from : 0);
    }
  }
}

static void land_all(struct ft_block *block, int number) {
  int kept = 0;
  for (int n = 0; n < block->load_count; n++) {
    const struct ft_load *const load = &block->loads[n];
    if (load->mbarrier == number)
      land(&block->shared, &load->box, load->source ? &load->source->shared : NULL);
    else
      block->loads[kept++] = *load;
  }
  block->load_count = kept;
}

static struct ft_accessor accessor_of(const struct ft_mbarrier *mbarrier, int line) {
  const struct ft_block *const here = ft_block_now;
  struct ft_accessor by = ft_shared_thread(&here->shared, here->running->number, line);
  by.stamp = ft_stamp(mbarrier->phase + 1, mbarrier->agent);
  by.async = true;
  return by;
}

/* Bytes nobody may touch until they have landed. how: "by multicast, ". */
static void begin(struct ft_block *there, const struct ft_box *box,
                  const struct ft_mbarrier *mbarrier, const char *how, int line) {
  const struct ft_accessor by = accessor_of(mbarrier, line);
  char what[256], block[48] = "";
  if (there != ft_block_now)
    snprintf(block, sizeof block, "%sin block %u, ", how, there->machine.here.block.x);
  for (int number = 0; number < box->rows; number++) {
    const struct ft_box_row row = ft_box_row(box, number);
    for (int byte = 0; byte < box->row_bytes; byte += FT_CHUNK)
      if (ft_shared_write_by(&there->shared, &by, ft_box_chunk(box, &row, byte), FT_CHUNK,
                             FT_PENDING, what))
        ft_fault(line, "%s%s", block, what);
  }
}

/* ---- phases ---- */

static void complete(struct ft_block *block, struct ft_mbarrier *mbarrier) {
  struct ft_clocks *const clocks = block->shared.clocks;
  const int number = (int)(mbarrier - block->mbarriers);
  if (mbarrier->queued > 0) land_all(block, number);
  mbarrier->phase++;
  mbarrier->missing = mbarrier->count;
  mbarrier->expected = mbarrier->queued = 0;
  mbarrier->gathered[mbarrier->agent] = mbarrier->phase;
  ft_clock_join(clocks, mbarrier->released, mbarrier->gathered);
  ft_clock_clear(clocks, mbarrier->gathered);
  for (int t = 0; t < block->thread_count; t++) {
    struct ft_thread *const thread = &block->threads[t];
    if (thread->waiting != FT_AT_MBARRIER || thread->what != number) continue;
    mbarrier->waited = mbarrier->phase;
    ft_clocks_acquire(clocks, thread->agent, mbarrier->released);
    ft_release(thread);
  }
}

static bool somebody_waits(const struct ft_block *block, const struct ft_mbarrier *mbarrier) {
  const int number = (int)(mbarrier - block->mbarriers);
  for (int t = 0; t < block->thread_count; t++)
    if (block->threads[t].waiting == FT_AT_MBARRIER && block->threads[t].what == number)
      return true;
  return false;
}

static bool lacks_nothing(const struct ft_mbarrier *mbarrier) {
  return mbarrier->missing == 0 && mbarrier->expected == mbarrier->queued;
}

/* After an arrival or a load. */
static void settle(struct ft_block *there, struct ft_mbarrier *mbarrier, int line) {
  char name[NAME];
  if (mbarrier->missing == 0 && mbarrier->queued > mbarrier->expected)
    ft_fault(line, "loads %lld bytes more than the %lld that phase %u of %s expects",
             (long long)(mbarrier->queued - mbarrier->expected), (long long)mbarrier->expected,
             mbarrier->phase, name_of(there, mbarrier->address, ft_block_now, name));
  if (!lacks_nothing(mbarrier)) return;
  if (mbarrier->queued == 0 || somebody_waits(there, mbarrier)) complete(there, mbarrier);
}

static void arrive(struct ft_block *there, uint32_t address, uint32_t bytes, int line) {
  struct ft_mbarrier *const mbarrier = find(there, address, line);
  char name[NAME];
  if (mbarrier->missing == 0)
    ft_fault(line,
             "arrives once more than the %d arrivals of phase %u of %s, which still waits for "
             "bytes",
             mbarrier->count, mbarrier->phase, name_of(there, address, ft_block_now, name));
  if (mbarrier->waited != mbarrier->phase)
    ft_fault(line, "arrives in phase %u of %s, and nobody has waited for the one before",
             mbarrier->phase, name_of(there, address, ft_block_now, name));
  if (mbarrier->expected + bytes > BYTES_MOST)
    ft_fault(line, "has %s expect %lld bytes; allowed: up to %d",
             name_of(there, address, ft_block_now, name), (long long)mbarrier->expected + bytes,
             BYTES_MOST);
  ft_clocks_release(there->shared.clocks, ft_block_now->running->agent, mbarrier->gathered);
  mbarrier->expected += bytes;
  mbarrier->missing--;
  settle(there, mbarrier, line);
}

void ft_mbarrier_arrive(uint32_t address, uint32_t bytes, int line) {
  ft_count_step(line);
  arrive(ft_block_now, address, bytes, line);
}

void ft_mbarrier_arrive_at(uint32_t address, unsigned rank, int line) {
  ft_count_step(line);
  struct ft_block *const there = ft_cluster_block(rank, line);
  ft_cluster_note_arrival(there, line);
  arrive(there, address, 0, line);
}

static struct ft_box make_box(uint32_t to, const void *map, const struct fe_place *at, int line) {
  const struct ft_emulated_launch *const launch = ft_block_now->launch;
  struct ft_box box;
  char what[512];
  ft_count_step(line);
  if (ft_box_make(&box, map, to, at, what) ||
      !ft_box_check(&box, launch->tensors, launch->tensor_count, FE_READ, what, sizeof what))
    ft_fault(line, "%s", what);
  return box;
}

static bool is_announced(const struct ft_block *there, const struct ft_mbarrier *mbarrier) {
  if (!mbarrier->announced) return false;
  return there == ft_block_now || ft_is_before(mbarrier->announced, clock_now());
}

/* Bytes that nobody may write until the phase is complete. */
static void begin_source(struct ft_block *source, const struct ft_box *box,
                         const struct ft_mbarrier *mbarrier, int line) {
  struct ft_accessor by = accessor_of(mbarrier, line);
  by.slot = ft_slot_of_stores(&source->shared);
  const struct ft_box_row row = ft_box_row(box, 0);
  char what[256];
  for (int byte = 0; byte < box->row_bytes; byte += FT_CHUNK)
    if (ft_shared_read_by(&source->shared, &by, (uint32_t)row.global + (uint32_t)byte, FT_CHUNK,
                          what))
      ft_fault(line, "%s", what);
}

/* source: the block whose shared memory the box lies in; NULL: it lies in global memory. */
static void load(struct ft_block *there, const struct ft_box *box, struct ft_block *source,
                 uint32_t address, int line) {
  struct ft_mbarrier *const mbarrier = find(there, address, line);
  char name[NAME];
  if (!is_announced(there, mbarrier))
    ft_fault(line,
             "has TMA use %s, which no fence (fence.mbarrier_init, fence.proxy.async) has made "
             "known to it",
             name_of(there, address, ft_block_now, name));
  if (source) begin_source(source, box, mbarrier, line);
  begin(there, box, mbarrier, source ? "" : "by multicast, ", line);
  there->loads =
      ft_make_room(there->loads, &there->load_room, there->load_count, sizeof *there->loads);
  there->loads[there->load_count++] =
      (struct ft_load){.box = *box,
                       .source = source,
                       .thread = ft_block_now->running,
                       .mbarrier = (int)(mbarrier - there->mbarriers),
                       .line = line};
  mbarrier->queued += (int64_t)box->rows * box->row_bytes;
  settle(there, mbarrier, line);
}

void ft_tma_load(uint32_t to, const void *map, uint32_t address, const struct fe_place *at,
                 int line) {
  const struct ft_box box = make_box(to, map, at, line);
  load(ft_block_now, &box, NULL, address, line);
}

void ft_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t address, int line) {
  const struct ft_emulated_launch *const launch = ft_block_now->launch;
  struct ft_box box;
  char what[512];
  ft_count_step(line);
  if (ft_box_line(&box, (uintptr_t)from, to, bytes, what) ||
      !ft_box_check(&box, launch->tensors, launch->tensor_count, FE_READ, what, sizeof what))
    ft_fault(line, "%s", what);
  load(ft_block_now, &box, NULL, address, line);
}

void ft_tma_load_multicast(uint32_t to, const void *map, uint32_t address,
                           const struct fe_place *at, unsigned blocks, int line) {
  const int count = ft_block_now->cluster->count;
  if (blocks == 0 || blocks >> count != 0)
    ft_fault(line,
             "multicasts to blocks 0x%x, a bit for each; allowed in its cluster of %d: 1 to 0x%x",
             blocks, count, (1u << count) - 1);
  const struct ft_box box = make_box(to, map, at, line);
  for (unsigned rank = 0; blocks >> rank != 0; rank++)
    if (blocks >> rank & 1) load(ft_cluster_block(rank, line), &box, NULL, address, line);
}

/* The copy begins behind all that its thread is ordered behind, so who waits for it is, too. */
void ft_copy_to_block(uint32_t to, uint32_t from, uint32_t bytes, uint32_t address, unsigned rank,
                      int line) {
  struct ft_block *const there = ft_cluster_block(rank, line);
  struct ft_box box;
  char what[256];
  ft_count_step(line);
  if (ft_box_line(&box, from, to, bytes, what)) ft_fault(line, "%s", what);
  ft_clocks_release(there->shared.clocks, ft_block_now->running->agent,
                    find(there, address, line)->gathered);
  ft_cluster_note_arrival(there, line); /* not ordered: the source may still be read */
  load(there, &box, ft_block_now, address, line);
}

/* Whether the phase of this parity has completed: the one before the one under way has the other
 * parity. If so, all that came before it is known to the thread. Loads that nobody waits for have
 * not landed. */
int ft_mbarrier_test(uint32_t address, unsigned parity, int line) {
  struct ft_block *const block = ft_block_now;
  ft_count_step(line);
  struct ft_mbarrier *const mbarrier = find(block, address, line);
  if (parity > 1) ft_fault(line, "asks for parity %u of an mbarrier; allowed: 0, 1", parity);
  if (mbarrier->phase % 2 == parity) return 0;
  mbarrier->waited = mbarrier->phase;
  ft_clocks_acquire(block->shared.clocks, block->running->agent, mbarrier->released);
  return 1;
}

/* The phase before the one under way has the other parity and has completed. */
void ft_mbarrier_wait(uint32_t address, unsigned parity, int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_thread *const thread = block->running;
  ft_count_step(line);
  struct ft_mbarrier *const mbarrier = find(block, address, line);
  if (parity > 1) ft_fault(line, "waits for parity %u of an mbarrier; allowed: 0, 1", parity);
  if (mbarrier->phase % 2 == parity && lacks_nothing(mbarrier)) complete(block, mbarrier);
  if (mbarrier->phase % 2 != parity) {
    mbarrier->waited = mbarrier->phase;
    ft_clocks_acquire(block->shared.clocks, thread->agent, mbarrier->released);
    return;
  }
  ft_wait_at(thread, FT_AT_MBARRIER, (int)(mbarrier - block->mbarriers), line, NULL);
  ft_fiber_leave(&thread->fiber);
}

/* ---- blocks ---- */

void ft_mbarriers_reset(struct ft_block *block) {
  block->mbarrier_count = 0;
  block->load_count = 0;
}

void ft_mbarriers_free(struct ft_block *block) {
  for (int n = 0; n < FT_MBARRIERS; n++) {
    free(block->mbarriers[n].gathered);
    free(block->mbarriers[n].released);
  }
  free(block->loads);
}

/* Bytes of this block that are on their way to another one. */
static void check_copies_landed(const struct ft_block *block) {
  for (int rank = 0; rank < block->cluster->count; rank++) {
    const struct ft_block *const there = &block->cluster->blocks[rank];
    for (int n = 0; n < there->load_count; n++) {
      const struct ft_load *const load = &there->loads[n];
      if (load->source != block || there == block) continue;
      load->thread->line = load->line;
      ft_fault_outside(load->thread,
                       "begins a copy to block %u that is still under way as its own block ends: "
                       "no cluster_sync keeps it",
                       there->machine.here.block.x);
      return;
    }
  }
}

void ft_check_loads_landed(struct ft_block *block) {
  check_copies_landed(block);
  if (block->cluster->faulted || block->load_count == 0) return;
  const struct ft_load *const load = &block->loads[0];
  const struct ft_mbarrier *const mbarrier = &block->mbarriers[load->mbarrier];
  char name[NAME], ends[24] = "the block";
  if (load->thread->block != block)
    snprintf(ends, sizeof ends, "block %u", block->machine.here.block.x);
  load->thread->line = load->line;
  ft_fault_outside(load->thread,
                   "begins a TMA load that is still under way as %s ends: nobody waits for phase "
                   "%u of %s",
                   ends, mbarrier->phase,
                   name_of(block, mbarrier->address, load->thread->block, name));
}
