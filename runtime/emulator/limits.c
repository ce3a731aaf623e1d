/* limits.c: what a launch may use up.
 * in -> out: a step, a need of memory -> what is left, or the end of the launch. */
#include "runtime/emulator/limits.h"

#include <stdlib.h>

#include "runtime/emulator/block.h"
#include "runtime/emulator/fault.h"

static void too_many_steps(int line) {
  ft_fault(line, "does not end: the block has taken %llu steps (FATUNE_EMULATOR_STEPS)",
           (unsigned long long)ft_block_now->launch->steps_most);
}

void ft_step(void) {
  too_many_steps(0);
}

void ft_count_step(int line) {
  if (ft_block_now->machine.steps_left-- == 0) too_many_steps(line);
}

void *ft_need(void *memory) {
  if (!memory) ft_fault(0, "has no memory left for what is under way");
  return memory;
}

void *ft_make_room(void *array, int *room, int count, size_t size) {
  if (count < *room) return array;
  const int more = *room ? 2 * *room : 64;
  void *const grown = ft_need(realloc(array, (size_t)more * size));
  *room = more;
  return grown;
}
