/* fiber.h: a thread of execution with a stack of its own, changed to and from by hand.
 * in -> out: a function -> calls of it that can be left in the middle and entered again.
 * A fiber belongs to the operating system's thread that made it. */
#ifndef RUNTIME_EMULATOR_FIBER_H
#define RUNTIME_EMULATOR_FIBER_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

struct ft_fiber {
  unsigned char *stack; /* owned, with a page below that faults */
  size_t stack_bytes;
  bool begun; /* it has been entered and may be entered again */
  void (*run)(void *payload);
  void *payload;
  ucontext_t first; /* for the first entry; later ones jump */
  jmp_buf inside, outside;
  void *fake_inside, *fake_outside; /* AddressSanitizer's */
  const void *outer_stack;
  size_t outer_bytes;
};

/* The fiber calls run(payload) at every entry after run has returned. FT_E_MEMORY. */
int ft_fiber_make(struct ft_fiber *fiber, size_t stack_bytes, void (*run)(void *payload),
                  void *payload);
void ft_fiber_free(struct ft_fiber *fiber);

/* Goes on where it left, or begins; returns when it leaves or run returns. */
void ft_fiber_enter(struct ft_fiber *fiber);
/* Called inside: back to who entered. */
void ft_fiber_leave(struct ft_fiber *fiber);

#endif
