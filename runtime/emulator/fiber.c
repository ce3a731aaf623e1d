/* fiber.c: fibers from makecontext, _setjmp and _longjmp: all of it in the C library, and after the
 * first entry without a system call.
 * in -> out: function, stack -> entries and leaves. */
#undef _FORTIFY_SOURCE /* its longjmp refuses to jump to another stack */
#include "runtime/emulator/fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "generator/status.h"

/* AddressSanitizer must be told of every change of stacks. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define start_switch(save, stack, bytes)  __sanitizer_start_switch_fiber(save, stack, bytes)
#define finish_switch(save, stack, bytes) __sanitizer_finish_switch_fiber(save, stack, bytes)
#define forget_stack(stack, bytes)        __asan_unpoison_memory_region(stack, bytes)
#else
#define start_switch(save, stack, bytes)  ((void)(save))
#define finish_switch(save, stack, bytes) ((void)(save))
#define forget_stack(stack, bytes)        ((void)(stack))
#endif

static size_t page(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

int ft_fiber_make(struct ft_fiber *fiber, size_t stack_bytes, void (*run)(void *payload),
                  void *payload) {
  memset(fiber, 0, sizeof *fiber);
  const size_t guard = page();
  unsigned char *const memory =
      mmap(NULL, stack_bytes + guard, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED)
    return ft_fail(FT_E_MEMORY, "no memory for a stack of %zu bytes", stack_bytes);
  fiber->stack = memory + guard;
  fiber->stack_bytes = stack_bytes;
  fiber->run = run;
  fiber->payload = payload;
  if (mprotect(memory, guard, PROT_NONE) != 0) {
    ft_fiber_free(fiber);
    return ft_fail(FT_E_MEMORY, "a page below a stack cannot be protected");
  }
  return FT_OK;
}

void ft_fiber_free(struct ft_fiber *fiber) {
  if (!fiber->stack) return;
  forget_stack(fiber->stack, fiber->stack_bytes);
  munmap(fiber->stack - page(), fiber->stack_bytes + page());
  memset(fiber, 0, sizeof *fiber);
}

static void live(struct ft_fiber *fiber) {
  finish_switch(NULL, &fiber->outer_stack, &fiber->outer_bytes);
  for (;;) {
    fiber->run(fiber->payload);
    ft_fiber_leave(fiber);
  }
}

/* makecontext hands over ints only, so a pointer travels as two. */
static void begin(unsigned high, unsigned low) {
  live((struct ft_fiber *)(((uintptr_t)high << 32) | low));
}

void ft_fiber_enter(struct ft_fiber *fiber) {
  start_switch(&fiber->fake_outside, fiber->stack, fiber->stack_bytes);
  if (_setjmp(fiber->outside) == 0) {
    if (fiber->begun) _longjmp(fiber->inside, 1);
    fiber->begun = true;
    getcontext(&fiber->first);
    fiber->first.uc_stack.ss_sp = fiber->stack;
    fiber->first.uc_stack.ss_size = fiber->stack_bytes;
    fiber->first.uc_link = NULL;
    const uintptr_t self = (uintptr_t)fiber;
    makecontext(&fiber->first, (void (*)(void))begin, 2, (unsigned)(self >> 32), (unsigned)self);
    setcontext(&fiber->first);
  }
  finish_switch(fiber->fake_outside, NULL, NULL);
}

void ft_fiber_leave(struct ft_fiber *fiber) {
  start_switch(&fiber->fake_inside, fiber->outer_stack, fiber->outer_bytes);
  if (_setjmp(fiber->inside) == 0) _longjmp(fiber->outside, 1);
  finish_switch(fiber->fake_inside, &fiber->outer_stack, &fiber->outer_bytes);
}
