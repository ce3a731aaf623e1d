/* tma_store.c: TMA stores and additions, done as late as the wait that orders them allows.
 * in -> out: boxes, groups, waits of one thread -> global memory.
 * The shared memory that a store reads may be written again by those who are ordered behind its
 * wait. What nobody has waited for is done as its thread ends. */
#include "runtime/emulator/tma_store.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/limits.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_map.h"

struct store {
  struct ft_box box;
  bool adds; /* fp32 numbers to those in global memory */
  uint32_t time, group;
};

struct ft_stores {
  struct store *queue; /* the oldest first; owned */
  int count, room;
  uint32_t time;      /* of the last store */
  uint32_t committed; /* groups */
  int agent;
};

static struct ft_stores *stores_of(struct ft_block *block, struct ft_thread *thread, int line) {
  if (!thread->stores) {
    thread->stores = ft_need(calloc(1, sizeof *thread->stores));
    thread->stores->agent = -1;
  }
  if (thread->stores->agent < 0)
    thread->stores->agent =
        ft_clocks_agent(block->shared.clocks, block->rank, FT_STORES, thread->number);
  if (thread->stores->agent < 0) ft_fault(line, "stores as one thread more than are emulated");
  return thread->stores;
}

/* What lies beyond the tensor is not stored, so it does not matter what it is. */
static void begin(struct ft_block *block, const struct ft_box *box, const struct ft_stores *stores,
                  int line) {
  struct ft_accessor by = ft_shared_thread(&block->shared, block->running->number, line);
  by.stamp = ft_stamp(stores->time, stores->agent);
  by.slot = ft_slot_of_stores(&block->shared);
  by.async = true;
  char what[256];
  for (int number = 0; number < box->rows; number++) {
    const struct ft_box_row row = ft_box_row(box, number);
    for (int byte = row.first / FT_CHUNK * FT_CHUNK; byte < row.end; byte += FT_CHUNK)
      if (ft_shared_read_by(&block->shared, &by, ft_box_chunk(box, &row, byte), FT_CHUNK, what))
        ft_fault(line, "%s", what);
  }
}

static void add(struct store store, int line) {
  struct ft_block *const block = ft_block_now;
  char what[512];
  if (!ft_box_check(&store.box, block->launch->tensors, block->launch->tensor_count,
                    store.adds ? FE_ATOMIC : FE_WRITE, what, sizeof what))
    ft_fault(line, "%s", what);
  struct ft_stores *const stores = stores_of(block, block->running, line);
  store.time = ++stores->time;
  store.group = stores->committed;
  begin(block, &store.box, stores, line);
  stores->queue = ft_make_room(stores->queue, &stores->room, stores->count, sizeof *stores->queue);
  stores->queue[stores->count++] = store;
}

void ft_tma_store(const void *map, uint32_t from, const struct fe_place *at, int line) {
  struct store store = {.adds = false};
  char what[256];
  ft_count_step(line);
  if (ft_box_make(&store.box, map, from, at, what)) ft_fault(line, "%s", what);
  add(store, line);
}

void ft_bulk_add(void *to, uint32_t from, uint32_t bytes, int line) {
  struct store store = {.adds = true};
  char what[256];
  ft_count_step(line);
  if (ft_box_line(&store.box, (uintptr_t)to, from, bytes, what)) ft_fault(line, "%s", what);
  add(store, line);
}

void ft_tma_store_commit(int line) {
  stores_of(ft_block_now, ft_block_now->running, line)->committed++;
}

static void finish_add(const struct ft_shared_memory *shared, const struct ft_box *box) {
  const struct ft_box_row row = ft_box_row(box, 0);
  float *const sums = (float *)(uintptr_t)row.global;
  for (int byte = 0; byte < row.end; byte += (int)sizeof(float)) {
    float x;
    memcpy(&x, ft_shared_at(shared, row.shared + (uint32_t)byte), sizeof x);
    sums[(size_t)byte / sizeof x] += x;
  }
}

static void finish(const struct ft_shared_memory *shared, const struct ft_box *box) {
  for (int number = 0; number < box->rows; number++) {
    const struct ft_box_row row = ft_box_row(box, number);
    for (int byte = 0; byte < row.end; byte += FT_CHUNK) {
      const int first = row.first > byte ? row.first : byte;
      const int end = row.end < byte + FT_CHUNK ? row.end : byte + FT_CHUNK;
      if (end <= first) continue;
      const unsigned char *const chunk = ft_shared_at(shared, ft_box_chunk(box, &row, byte));
      memcpy((void *)(uintptr_t)(row.global + (uint64_t)(first - row.first)),
             chunk + (first - byte), (size_t)(end - first));
    }
  }
}

static void finish_groups(struct ft_block *block, struct ft_thread *thread, uint32_t groups) {
  struct ft_stores *const stores = thread->stores;
  int done = 0;
  while (done < stores->count && stores->queue[done].group < groups) {
    const struct store *const store = &stores->queue[done];
    (store->adds ? finish_add : finish)(&block->shared, &store->box);
    ft_clocks_learn(block->shared.clocks, thread->agent, stores->agent, store->time);
    done++;
  }
  if (done == 0) return;
  stores->count -= done;
  memmove(stores->queue, stores->queue + done, (size_t)stores->count * sizeof *stores->queue);
}

void ft_tma_store_wait(int youngest, int line) {
  struct ft_thread *const thread = ft_block_now->running;
  ft_count_step(line);
  if (!thread->stores || thread->stores->committed <= (uint32_t)youngest) return;
  finish_groups(ft_block_now, thread, thread->stores->committed - (uint32_t)youngest);
}

void ft_stores_release(int line) {
  const struct ft_stores *const stores = ft_block_now->running->stores;
  if (!stores || stores->count == 0) return;
  ft_fault(line,
           "makes known to other blocks what it did, but %d of its TMA stores are under way: no "
           "cp.async.bulk.wait_group comes before",
           stores->count);
}

void ft_stores_end(struct ft_thread *thread) {
  struct ft_stores *const stores = thread->stores;
  if (!stores) return;
  if (stores->count > 0) finish_groups(ft_block_now, thread, UINT32_MAX);
  stores->agent = -1;
  stores->committed = stores->time = 0;
}

void ft_stores_free(struct ft_thread *thread) {
  if (!thread->stores) return;
  free(thread->stores->queue);
  free(thread->stores);
}
