/* waits.c: threads that wait for others: for their warp, for their block.
 * in -> out: arrivals -> the op carried out or the barrier opened, those who waited released; or
 * what is wrong with who came where. */
#include <stdio.h>

#include "runtime/emulator/block.h"

static void too_many_steps(int line) {
  ft_fault(line, "does not end: the block has taken %llu steps (FATUNE_EMULATOR_STEPS)",
           (unsigned long long)ft_block_now->launch->steps_most);
}

void ft_step(void) {
  too_many_steps(0);
}

static void count_step(int line) {
  if (ft_block_now->machine.steps_left-- == 0) too_many_steps(line);
}

void ft_wait_at(struct ft_thread *thread, enum ft_waiting waiting, int what, int line,
                void *record) {
  thread->waiting = waiting;
  thread->what = what;
  thread->line = line;
  thread->record = record;
}

static void release(struct ft_thread *thread) {
  thread->waiting = FT_RUNNING;
  ft_block_now->warps[thread->number / FE_WARP].runnable = true;
}

/* "ldmatrix in line 12 (parts/mma_tile.cu.in:3)" */
const char *ft_thread_text(const struct ft_thread *thread, char text[160]) {
  char line[96];
  switch (thread->waiting) {
  case FT_RUNNING: snprintf(text, 160, "still runs"); break;
  case FT_ENDED: snprintf(text, 160, "has ended"); break;
  case FT_AT_WARP_OP:
    snprintf(text, 160, "is at %s in %s", ft_warp_op_names[thread->what],
             ft_line_text(thread->line, line));
    break;
  case FT_AT_BARRIER:
    snprintf(text, 160, "is at barrier %d in %s", thread->what, ft_line_text(thread->line, line));
    break;
  }
  return text;
}

/* All lanes have arrived at something; it must be one thing. */
static void check_together(const struct ft_warp *warp, const struct ft_thread *thread) {
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct ft_thread *const other = warp->lanes[lane];
    if (other->what == thread->what && other->line == thread->line) continue;
    char text[160];
    ft_fault(thread->line, "%s is for the whole warp, but lane %d %s",
             ft_warp_op_names[thread->what], lane, ft_thread_text(other, text));
  }
}

void ft_arrive_at_warp_op(enum fe_warp_op op, void *record, int line) {
  struct ft_thread *const thread = ft_block_now->running;
  struct ft_warp *const warp = &ft_block_now->warps[thread->number / FE_WARP];
  count_step(line);
  ft_wait_at(thread, FT_AT_WARP_OP, (int)op, line, record);
  if (++warp->arrived < FE_WARP) {
    ft_fiber_leave(&thread->fiber);
    return;
  }
  check_together(warp, thread);
  ft_warp_op_run(op, warp, line);
  warp->arrived = 0;
  for (int lane = 0; lane < FE_WARP; lane++) release(warp->lanes[lane]);
}

static void open_barrier(struct ft_block *block, int id) {
  struct ft_barrier *const barrier = &block->barriers[id];
  int threads[FT_THREADS_MOST], count = 0;
  for (int t = 0; t < block->thread_count; t++) {
    struct ft_thread *const thread = &block->threads[t];
    if (thread->waiting != FT_AT_BARRIER || thread->what != id) continue;
    threads[count++] = t;
    release(thread);
  }
  *barrier = (struct ft_barrier){0};
  if (count == block->thread_count)
    ft_shared_order_all(&block->shared);
  else
    ft_shared_order(&block->shared, threads, count);
}

/* A barrier of the whole block is one line of the text for all; of a named one each side may have
 * its own. */
static void check_same_line(const struct ft_block *block, int line) {
  for (int t = 0; t < block->thread_count; t++) {
    const struct ft_thread *const other = &block->threads[t];
    char text[160];
    if (other->waiting == FT_AT_BARRIER && other->what == 0 && other->line != line)
      ft_fault(line, "is a barrier of the whole block, but warp %d, lane %d %s", t / FE_WARP,
               t % FE_WARP, ft_thread_text(other, text));
  }
}

void ft_arrive_at_barrier(int id, int threads, int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_thread *const thread = block->running;
  count_step(line);
  if (id < 0 || id >= FT_BARRIERS)
    ft_fault(line, "names barrier %d; allowed: 0 to %d", id, FT_BARRIERS - 1);
  const int expected = threads > 0 ? threads : block->thread_count;
  struct ft_barrier *const barrier = &block->barriers[id];
  if (barrier->arrived > 0 && barrier->expected != expected)
    ft_fault(line, "waits at barrier %d for %d threads, others wait there for %d", id, expected,
             barrier->expected);
  if (threads == 0) check_same_line(block, line);
  barrier->expected = expected;
  ft_wait_at(thread, FT_AT_BARRIER, id, line, NULL);
  if (++barrier->arrived == expected)
    open_barrier(block, id);
  else
    ft_fiber_leave(&thread->fiber);
}
