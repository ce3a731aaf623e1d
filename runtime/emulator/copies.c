/* copies.c: asynchronous copies (cp.async), done as late as the wait that orders them allows.
 * in -> out: copies, groups, waits of one thread -> shared memory.
 * A copy that nobody waits for never happens, so that a missing wait shows. */
#include "runtime/emulator/copies.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/limits.h"
#include "runtime/emulator/memory_check.h"
#include "runtime/emulator/shared_memory.h"

static int committed(const struct ft_thread *thread) {
  int count = 0;
  for (int g = 0; g < thread->group_count; g++) count += thread->groups[g];
  return count;
}

void ft_copy_async(uint32_t to, const void *from, int bytes, int valid, int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_thread *const thread = block->running;
  char what[512];
  if (valid > 0 && !ft_memory_check(block->launch->tensors, block->launch->tensor_count,
                                    (uintptr_t)from, valid, FE_READ, what, sizeof what))
    ft_fault(line, "%s", what);
  const struct ft_accessor by = ft_shared_thread(&block->shared, thread->number, line);
  if (ft_shared_write_by(&block->shared, &by, to, bytes, FT_PENDING, what))
    ft_fault(line, "%s", what);
  thread->copies =
      ft_make_room(thread->copies, &thread->copy_room, thread->copy_count, sizeof *thread->copies);
  thread->copies[thread->copy_count++] =
      (struct ft_copy){.from = from, .to = to, .bytes = bytes, .valid = valid, .line = line};
}

void ft_copy_commit(int line) {
  (void)line;
  struct ft_thread *const thread = ft_block_now->running;
  const int open = thread->copy_count - committed(thread);
  thread->groups = ft_make_room(thread->groups, &thread->group_room, thread->group_count,
                                sizeof *thread->groups);
  thread->groups[thread->group_count++] = open;
}

/* Copies of less than 16 bytes are for rows whose columns lie in another order than in memory,
 * which products take in that order: nothing is said of where those come from. */
static void finish(struct ft_thread *thread, const struct ft_copy *copy) {
  enum { CHUNK = 16 };
  const bool in_order = copy->bytes == CHUNK && copy->valid == CHUNK;
  struct ft_shared_memory *const shared = &ft_block_now->shared;
  unsigned char *const to = ft_shared_at(shared, copy->to);
  if (copy->valid > 0) memcpy(to, copy->from, (size_t)copy->valid);
  memset(to + copy->valid, 0, (size_t)(copy->bytes - copy->valid));
  ft_shared_landed(shared, copy->to, copy->bytes, ft_stamp_now(shared->clocks, thread->agent),
                   in_order ? (uintptr_t)copy->from : 0);
}

void ft_copy_wait(int youngest, int line) {
  (void)line;
  struct ft_thread *const thread = ft_block_now->running;
  const int groups = thread->group_count - youngest;
  if (groups <= 0) return;
  int done = 0;
  for (int g = 0; g < groups; g++) done += thread->groups[g];
  for (int n = 0; n < done; n++) finish(thread, &thread->copies[n]);
  thread->copy_count -= done;
  thread->group_count -= groups;
  if (done > 0) /* groups may be empty, and there be no copies at all */
    memmove(thread->copies, thread->copies + done,
            (size_t)thread->copy_count * sizeof *thread->copies);
  memmove(thread->groups, thread->groups + groups,
          (size_t)thread->group_count * sizeof *thread->groups);
}

void ft_copies_forget(struct ft_thread *thread) {
  thread->copy_count = thread->group_count = 0;
}
