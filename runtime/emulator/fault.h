/* fault.h: where a kernel went wrong, in words; the end of its launch. */
#ifndef RUNTIME_EMULATOR_FAULT_H
#define RUNTIME_EMULATOR_FAULT_H

#include <stddef.h>

#include "runtime/emulator/block.h"

/* Ends the launch from inside a thread: "fatune_kernel, line 12 (parts/...), block 0, warp 1, lane
 * 3: " and what happened. Does not return. line 0: that of the innermost call. */
_Noreturn void ft_fault(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same about another lane: the running lane carries an operation out for all. Does not return.
 */
_Noreturn void ft_fault_lane(const struct ft_thread *thread, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from outside of all threads; returns. */
void ft_fault_outside(const struct ft_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "fatune_kernel, line 12 (...), block 0, warp 1, lane 3": where the running thread is; nothing
 * where none runs. */
void ft_fault_place(char *words, size_t size);
/* "block 3"; "block 3 (rank 1 of its cluster)" where the cluster has several */
const char *ft_block_text(const struct ft_block *block, char text[FT_BLOCK_WORDS]);
/* "line 12 (parts/softmax.cu.in:3)" */
const char *ft_line_text(int line, char text[96]);

#endif
