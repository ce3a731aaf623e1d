/* block.c: the block that runs, and whether its threads do. */
#include "runtime/emulator/block.h"

struct ft_block *ft_block_now;

void ft_wait_at(struct ft_thread *thread, enum ft_waiting waiting, int what, int line,
                void *record) {
  thread->waiting = waiting;
  thread->what = what;
  thread->line = line;
  thread->record = record;
}

void ft_release(struct ft_thread *thread) {
  thread->waiting = FT_RUNNING;
  thread->block->warps[thread->number / FE_WARP].runnable = true;
}
