/* launch.c: a grid of clusters of blocks, each block a set of fibers that run until they have to
 * wait.
 * in -> out: kernel, grid, argument -> every thread run to its end, or a fault.
 *
 * Threads change only where one waits for others, so nothing here needs a lock. A warp runs as
 * far as it can, lane after lane, before the next one does, and a block as far as it can before the
 * next one of its cluster. One warp of a block runs only when no other can: a warp that does not
 * wait for it gets as far ahead of it as a GPU may ever let happen. When no thread can run and not
 * all have ended, a thread waits for another that will not come. */
#include "runtime/emulator/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/emulator/access.h"
#include "runtime/emulator/block.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/cluster.h"
#include "runtime/emulator/copies.h"
#include "runtime/emulator/deadlock.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/fiber.h"
#include "runtime/emulator/fragment.h"
#include "runtime/emulator/limits.h"
#include "runtime/emulator/mbarriers.h"
#include "runtime/emulator/named_barriers.h"
#include "runtime/emulator/runner.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tma_store.h"
#include "runtime/emulator/waits.h"
#include "runtime/emulator/warpgroup_ops.h"
#include "runtime/emulator/wgmma.h"

enum { STACK_BYTES = 256 * 1024 };

static void fault_of_primitive(int line, const char *what) {
  ft_fault(line, "%s", what);
}

static const struct fe_machine functions = {.warp = ft_arrive_at_warp_op,
                                            .barrier = ft_arrive_at_barrier,
                                            .shared_read = ft_emulate_shared_read,
                                            .shared_write = ft_emulate_shared_write,
                                            .shared_address = ft_emulate_shared_address,
                                            .global_read = ft_emulate_global_read,
                                            .global_write = ft_emulate_global_write,
                                            .copy_async = ft_copy_async,
                                            .copy_commit = ft_copy_commit,
                                            .copy_wait = ft_copy_wait,
                                            .warpgroup = ft_arrive_at_warpgroup_op,
                                            .mbarrier_init = ft_mbarrier_init,
                                            .mbarrier_init_fence = ft_mbarrier_init_fence,
                                            .mbarrier_arrive = ft_mbarrier_arrive,
                                            .mbarrier_test = ft_mbarrier_test,
                                            .mbarrier_wait = ft_mbarrier_wait,
                                            .mbarrier_arrive_at = ft_mbarrier_arrive_at,
                                            .cluster_read = ft_cluster_read,
                                            .tma_load = ft_tma_load,
                                            .tma_load_multicast = ft_tma_load_multicast,
                                            .tma_store = ft_tma_store,
                                            .tma_store_commit = ft_tma_store_commit,
                                            .tma_store_wait = ft_tma_store_wait,
                                            .bulk_load = ft_bulk_load,
                                            .bulk_add = ft_bulk_add,
                                            .copy_to_block = ft_copy_to_block,
                                            .async_proxy_fence = ft_async_proxy_fence,
                                            .release = ft_stores_release,
                                            .access = ft_emulate_plain,
                                            .step = ft_step,
                                            .fault = fault_of_primitive};

/* ---- running ---- */

static void run_thread(void *payload) {
  struct ft_thread *const thread = payload;
  const struct ft_emulated_launch *const launch = ft_block_now->launch;
  launch->entry->run(launch->argument);
  ft_stores_end(thread);
  thread->waiting = FT_ENDED;
  ft_cluster_thread_ends(thread);
}

static void enter(struct ft_block *block, struct ft_thread *thread) {
  block->running = thread;
  block->machine.here.thread.x = (unsigned)thread->number;
  block->machine.stack = thread->fiber.stack;
  block->machine.stack_bytes = thread->fiber.stack_bytes;
  ft_fiber_enter(&thread->fiber);
}

/* As far as the warp gets without the others. */
static void run_warp(struct ft_block *block, struct ft_warp *warp) {
  while (warp->runnable && !block->cluster->faulted) {
    warp->runnable = false;
    for (int lane = 0; lane < FE_WARP && !block->cluster->faulted; lane++)
      if (warp->lanes[lane]->waiting == FT_RUNNING) enter(block, warp->lanes[lane]);
  }
}

static bool all_ended(const struct ft_block *block) {
  for (int t = 0; t < block->thread_count; t++)
    if (block->threads[t].waiting != FT_ENDED) return false;
  return true;
}

static bool any_runnable(const struct ft_block *block) {
  for (int w = 0; w < block->warp_count; w++)
    if (block->warps[w].runnable) return true;
  return false;
}

static void reset_block(struct ft_block *block, unsigned number) {
  block->machine.here.block.x = number;
  block->machine.steps_left = block->launch->steps_most;
  block->ended = false;
  ft_shared_reset(&block->shared);
  ft_barriers_reset(block);
  ft_mbarriers_reset(block);
  ft_warpgroups_reset(block);
  memset(block->arrivals, 0, (size_t)block->cluster->clocks.threads * sizeof *block->arrivals);
  for (int t = 0; t < block->thread_count; t++) {
    ft_wait_at(&block->threads[t], FT_RUNNING, 0, 0, NULL);
    ft_copies_forget(&block->threads[t]);
  }
  for (int w = 0; w < block->warp_count; w++) {
    block->warps[w].arrived = 0;
    block->warps[w].runnable = true;
  }
}

static void end_block(struct ft_block *block) {
  const bool *const faulted = &block->cluster->faulted;
  block->ended = true;
  ft_check_loads_landed(block);
  if (!*faulted) ft_check_products_done(block);
  if (!*faulted) ft_check_arrivals_done(block);
}

/* The warp of the block that falls behind: another one in each block, and none in the first block.
 * Most faults are found in the first block, where the warps then run in order. */
static const struct ft_warp *slow_warp(const struct ft_block *block) {
  const unsigned number = block->machine.here.block.x;
  return number == 0 ? NULL : &block->warps[(number * 7 + 6) % (unsigned)block->warp_count];
}

/* All warps but one; NULL: all. Whether any could. */
static bool run_warps(struct ft_block *block, const struct ft_warp *but) {
  bool any = false;
  for (int w = 0; w < block->warp_count && !block->cluster->faulted; w++) {
    struct ft_warp *const warp = &block->warps[w];
    if (warp == but || !warp->runnable) continue;
    run_warp(block, warp);
    any = true;
  }
  return any;
}

/* As far as the block gets without the others. */
static void run_block(struct ft_block *block) {
  const bool *const faulted = &block->cluster->faulted;
  const struct ft_warp *const slow = slow_warp(block);
  ft_cluster_turn_to(block);
  while (!*faulted && (run_warps(block, slow) || run_warps(block, NULL))) continue;
  if (!*faulted && all_ended(block)) end_block(block);
}

/* Whether a block could. */
static bool run_blocks(struct ft_cluster *cluster) {
  bool any = false;
  for (int rank = 0; rank < cluster->count && !cluster->faulted; rank++) {
    if (!any_runnable(&cluster->blocks[rank])) continue;
    run_block(&cluster->blocks[rank]);
    any = true;
  }
  return any;
}

static void run_cluster(struct ft_cluster *cluster, unsigned first_block) {
  ft_cluster_reset(cluster, first_block);
  for (int rank = 0; rank < cluster->count; rank++)
    reset_block(&cluster->blocks[rank], first_block + (unsigned)rank);
  while (!cluster->faulted && run_blocks(cluster))
    ;
  for (int rank = 0; rank < cluster->count && !cluster->faulted; rank++)
    if (!cluster->blocks[rank].ended) ft_tell_deadlock(cluster);
}

/* ---- making ---- */

static int make_thread(struct ft_block *block, int number) {
  struct ft_thread *const thread = &block->threads[number];
  thread->block = block;
  thread->number = number;
  thread->agent = block->rank * block->cluster->clocks.block_agents + number;
  block->warps[number / FE_WARP].lanes[number % FE_WARP] = thread;
  thread->fragments.slots = block->fragments + (size_t)number * FT_FRAGMENT_SLOTS;
  return ft_fiber_make(&thread->fiber, STACK_BYTES, run_thread, thread);
}

static int make_block(struct ft_block *block, const struct ft_emulated_launch *launch) {
  const int threads = (int)launch->threads;
  struct ft_clocks *const clocks = &block->cluster->clocks;
  block->launch = launch;
  block->machine = functions;
  block->machine.here.block_size = (struct fe_index){launch->threads, 1, 1};
  block->machine.here.grid = (struct fe_index){launch->grid, 1, 1};
  block->machine.here.rank = (unsigned)block->rank;
  block->thread_count = threads;
  block->warp_count = threads / FE_WARP;
  block->threads = calloc((size_t)threads, sizeof *block->threads);
  block->warps = calloc((size_t)block->warp_count, sizeof *block->warps);
  block->warpgroup_count = threads / FT_WARPGROUP;
  block->warpgroups = calloc((size_t)block->warpgroup_count + 1, sizeof *block->warpgroups);
  block->arrivals = calloc((size_t)clocks->threads, sizeof *block->arrivals);
  block->fragments = calloc((size_t)threads * FT_FRAGMENT_SLOTS, sizeof *block->fragments);
  if (!block->threads || !block->warps || !block->warpgroups || !block->arrivals ||
      !block->fragments)
    return ft_fail(FT_E_MEMORY, "no memory for a block");
  for (int t = 0; t < threads; t++) FT_TRY(make_thread(block, t));
  return ft_shared_make(&block->shared, launch->kernel->shared, launch->shared_bytes, threads,
                        clocks, block->rank, launch->kernel->sees_plain != 0);
}

static int make_cluster(struct ft_cluster *cluster, const struct ft_emulated_launch *launch) {
  const int threads = (int)launch->threads;
  if (threads < FE_WARP || threads > FT_THREADS_MOST || threads % FE_WARP != 0)
    return ft_fail(FT_E_ARGUMENT, "a block of %u threads; allowed: %d to %d, whole warps",
                   launch->threads, FE_WARP, FT_THREADS_MOST);
  cluster->count = launch->cluster;
  FT_TRY(ft_clocks_make(&cluster->clocks, cluster->count, threads));
  cluster->gathered = ft_clock_make(&cluster->clocks);
  if (!cluster->gathered) return ft_fail(FT_E_MEMORY, "no memory for a cluster");
  for (int rank = 0; rank < cluster->count; rank++) {
    struct ft_block *const block = &cluster->blocks[rank];
    block->cluster = cluster;
    block->rank = rank;
    FT_TRY(make_block(block, launch));
  }
  return FT_OK;
}

static void free_block(struct ft_block *block) {
  for (int t = 0; block->threads && t < block->thread_count; t++) {
    struct ft_thread *const thread = &block->threads[t];
    ft_fiber_free(&thread->fiber);
    free(thread->copies);
    free(thread->groups);
    ft_stores_free(thread);
  }
  for (int g = 0; block->warpgroups && g < block->warpgroup_count; g++)
    ft_products_free(&block->warpgroups[g].products);
  ft_barriers_free(block);
  ft_mbarriers_free(block);
  free(block->warpgroups);
  free(block->threads);
  free(block->warps);
  free(block->arrivals);
  free(block->fragments);
  ft_shared_free(&block->shared);
}

int ft_emulated_launch_run(const struct ft_emulated_launch *launch, char *message, size_t size) {
  struct ft_cluster cluster = {.message = message, .message_size = size};
  ft_block_now = &cluster.blocks[0];
  *launch->kernel->machine = &ft_block_now->machine;
  int status = make_cluster(&cluster, launch);
  if (status != FT_OK) snprintf(message, size, "%s", ft_detail());
  for (unsigned number = 0; status == FT_OK && number < launch->grid;
       number += (unsigned)cluster.count) {
    run_cluster(&cluster, number);
    if (cluster.faulted) status = -1;
    ft_runner_progress();
  }
  for (int rank = 0; rank < FT_CLUSTER_MOST; rank++) free_block(&cluster.blocks[rank]);
  free(cluster.gathered);
  ft_clocks_free(&cluster.clocks);
  *launch->kernel->machine =
      NULL; /* instrumented code may run once more as the object is unloaded */
  ft_block_now = NULL;
  return status == FT_OK ? 0 : -1;
}
