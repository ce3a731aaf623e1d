/* fault.c: where a kernel went wrong, in words.
 * in -> out: line or stack, thread -> "fatune_kernel, line 212 (parts/copy_tile.cu.in:34),
 * block 3, warp 1, lane 17: reads 16 bytes ...; called from line 300 (...)".
 * The lines of the callers, inlined ones too, are asked from the host (lines.h); without its answer
 * the message lacks them. */
#include "runtime/emulator/fault.h"

#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "generator/text.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/fiber.h"
#include "runtime/emulator/runner.h"

enum { CALLERS_TOLD = 4 };

struct lines {
  int count;
  int lines[FT_ANSWER_MOST];
};

const char *ft_line_text(int line, char text[96]) {
  const struct fe_kernel *const kernel = ft_block_now->launch->kernel;
  if (line < 1 || line > kernel->lines)
    snprintf(text, 96, "unknown line");
  else
    snprintf(text, 96, "line %d (%s)", line, kernel->origins[line - 1]);
  return text;
}

const char *ft_block_text(const struct ft_block *block, char text[FT_BLOCK_WORDS]) {
  const unsigned number = block->machine.here.block.x;
  if (block->cluster->count == 1)
    snprintf(text, FT_BLOCK_WORDS, "block %u", number);
  else
    snprintf(text, FT_BLOCK_WORDS, "block %u (rank %d of its cluster)", number, block->rank);
  return text;
}

/* ---- the chain of calls ---- */

/* Offsets in the object of this thread's return addresses that lie in the kernel. One less: the
 * address behind a call may belong to the next line. */
static int find_frames(uint64_t offsets[FT_QUESTION_MOST]) {
  const struct fe_kernel *const kernel = ft_block_now->launch->kernel;
  void *frames[FT_QUESTION_MOST];
  const int all = backtrace(frames, FT_QUESTION_MOST);
  int count = 0;
  for (int i = 0; i < all; i++) {
    const unsigned char *const address = frames[i];
    if (address <= kernel->image_begin || address >= kernel->image_end) continue;
    offsets[count++] = (uint64_t)(address - kernel->image_begin - 1);
  }
  return count;
}

/* Lines of the emitted text, innermost first. */
static struct lines chain_of_calls(void) {
  struct lines chain = {0};
  uint64_t offsets[FT_QUESTION_MOST];
  const int count = find_frames(offsets);
  if (count > 0) chain.count = ft_runner_ask(offsets, count, chain.lines);
  return chain;
}

/* Those behind `line`, outwards; all when it is not among them. */
static void add_callers(struct ft_text *message, const struct lines *chain, int line) {
  int first = 0, told = 0;
  for (int i = chain->count - 1; i >= 0; i--)
    if (chain->lines[i] == line) first = i + 1;
  for (int i = first; i < chain->count && told < CALLERS_TOLD; i++) {
    char text[96];
    if (i > 0 && chain->lines[i] == chain->lines[i - 1]) continue;
    ft_text_add(message, "%s%s", told++ == 0 ? "; called from " : ", ",
                ft_line_text(chain->lines[i], text));
  }
}

/* ---- the message ---- */

__attribute__((format(printf, 4, 0))) static void tell(const struct ft_thread *thread, int line,
                                                       const struct lines *chain,
                                                       const char *format, va_list arguments) {
  struct ft_cluster *const cluster = thread->block->cluster;
  char place[96], where[FT_BLOCK_WORDS], what[2048];
  vsnprintf(what, sizeof what, format, arguments);
  struct ft_text message = FT_TEXT_INIT;
  ft_text_add(&message, "%s, %s, %s, warp %d, lane %d: %s", thread->block->launch->entry->name,
              ft_line_text(line, place), ft_block_text(thread->block, where),
              thread->number / FE_WARP, ft_lane_of(thread), what);
  if (chain) add_callers(&message, chain, line);
  if (ft_text_status(&message) == 0)
    snprintf(cluster->message, cluster->message_size, "%s", message.data);
  ft_text_free(&message);
  cluster->faulted = true;
}

void ft_fault(int line, const char *format, ...) {
  struct ft_thread *const thread = ft_block_now->running;
  const struct lines chain = chain_of_calls();
  va_list arguments;
  va_start(arguments, format);
  tell(thread, line > 0 || chain.count == 0 ? line : chain.lines[0], &chain, format, arguments);
  va_end(arguments);
  ft_fiber_leave(&thread->fiber);
  abort(); /* a thread that faulted is not entered again */
}

void ft_fault_lane(const struct ft_thread *thread, int line, const char *format, ...) {
  const struct lines chain = chain_of_calls(); /* the same for all lanes */
  va_list arguments;
  va_start(arguments, format);
  tell(thread, line, &chain, format, arguments);
  va_end(arguments);
  ft_fiber_leave(&ft_block_now->running->fiber);
  abort();
}

void ft_fault_outside(const struct ft_thread *thread, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  tell(thread, thread->line, NULL, format, arguments);
  va_end(arguments);
}

void ft_fault_place(char *words, size_t size) {
  if (!ft_block_now || !ft_block_now->running) return;
  const struct ft_thread *const thread = ft_block_now->running;
  const struct lines chain = chain_of_calls();
  char place[96], where[FT_BLOCK_WORDS];
  (void)snprintf(words, size, "%s, %s, %s, warp %d, lane %d", thread->block->launch->entry->name,
                 ft_line_text(chain.count > 0 ? chain.lines[0] : thread->line, place),
                 ft_block_text(thread->block, where), thread->number / FE_WARP, ft_lane_of(thread));
}
