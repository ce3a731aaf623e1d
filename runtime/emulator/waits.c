/* waits.c: threads that wait for others: for their warp, their warpgroup, their block.
 * in -> out: arrivals -> the operation carried out or the barrier opened, the waiting threads
 * released; or a fault, where threads have come to different places. */
#include "runtime/emulator/waits.h"

#include <stdio.h>

#include "runtime/emulator/block.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/deadlock.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/fiber.h"
#include "runtime/emulator/limits.h"
#include "runtime/emulator/warp_ops.h"
#include "runtime/emulator/warpgroup_ops.h"

/* ---- operations of a warp, of a warpgroup ---- */

/* All lanes have arrived at something; it must be one thing. */
static void check_together(const struct ft_thread *lanes, int count, const char *name,
                           const char *whole, const struct ft_thread *thread) {
  for (int i = 0; i < count; i++) {
    const struct ft_thread *const other = &lanes[i];
    if (other->what == thread->what && other->line == thread->line) continue;
    char text[FT_THREAD_WORDS], warp[24] = "";
    if (count > FE_WARP) snprintf(warp, sizeof warp, "warp %d, ", other->number / FE_WARP);
    ft_fault(thread->line, "%s is for the whole %s, but %slane %d %s", name, whole, warp,
             ft_lane_of(other), ft_thread_text(other, text));
  }
}

/* The op may have the lanes wait again: for a barrier, for registers. */
static void leave_unless_released(struct ft_thread *thread) {
  if (thread->waiting != FT_RUNNING) ft_fiber_leave(&thread->fiber);
}

void ft_arrive_at_warp_op(enum fe_warp_op op, void *record, int line) {
  struct ft_thread *const thread = ft_block_now->running;
  struct ft_warp *const warp = &ft_block_now->warps[thread->number / FE_WARP];
  ft_count_step(line);
  ft_wait_at(thread, FT_AT_WARP_OP, (int)op, line, record);
  if (++warp->arrived < FE_WARP) {
    ft_fiber_leave(&thread->fiber);
    return;
  }
  check_together(warp->lanes[0], FE_WARP, ft_warp_op_names[op], "warp", thread);
  warp->arrived = 0;
  for (int lane = 0; lane < FE_WARP; lane++) ft_release(warp->lanes[lane]);
  ft_warp_op_run(op, warp, line);
  leave_unless_released(thread);
}

void ft_arrive_at_warpgroup_op(enum fe_warpgroup_op op, void *record, int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_thread *const thread = block->running;
  const int number = thread->number / FT_WARPGROUP;
  ft_count_step(line);
  if (number >= block->warpgroup_count)
    ft_fault(line, "%s is for a warpgroup of %d threads, but the block has %d threads",
             ft_warpgroup_op_names[op], FT_WARPGROUP, block->thread_count);
  struct ft_warpgroup *const group = &block->warpgroups[number];
  ft_wait_at(thread, FT_AT_WARPGROUP_OP, (int)op, line, record);
  if (++group->arrived < FT_WARPGROUP) {
    ft_fiber_leave(&thread->fiber);
    return;
  }
  struct ft_thread *const first = &block->threads[number * FT_WARPGROUP];
  check_together(first, FT_WARPGROUP, ft_warpgroup_op_names[op], "warpgroup", thread);
  group->arrived = 0;
  for (int lane = 0; lane < FT_WARPGROUP; lane++) ft_release(&first[lane]);
  ft_warpgroup_op_run(op, number, line);
  leave_unless_released(thread);
}

/* ---- __syncthreads ---- */

static void open_barrier(struct ft_block *block) {
  for (int t = 0; t < block->thread_count; t++) ft_release(&block->threads[t]);
  block->barriers[0].arrived = 0;
  ft_clocks_order(block->shared.clocks, block->shared.first_agent, block->thread_count);
}

static void check_same_line(const struct ft_block *block, int line) {
  for (int t = 0; t < block->thread_count; t++) {
    const struct ft_thread *const other = &block->threads[t];
    char text[FT_THREAD_WORDS];
    if (other->waiting == FT_AT_BARRIER && other->what == 0 && other->line != line)
      ft_fault(line, "is a barrier of the whole block, but warp %d, lane %d %s", t / FE_WARP,
               t % FE_WARP, ft_thread_text(other, text));
  }
}

void ft_arrive_at_barrier(int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_thread *const thread = block->running;
  ft_count_step(line);
  check_same_line(block, line);
  ft_wait_at(thread, FT_AT_BARRIER, 0, line, NULL);
  if (++block->barriers[0].arrived == block->thread_count)
    open_barrier(block);
  else
    ft_fiber_leave(&thread->fiber);
}
