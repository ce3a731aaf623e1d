/* lines.h: which lines of an emitted text addresses in its object belong to.
 * in -> out: object file + offsets in it -> lines, callers of inlined code too. */
#ifndef RUNTIME_EMULATOR_LINES_H
#define RUNTIME_EMULATOR_LINES_H

#include <stdint.h>

enum { FT_OFFSETS_MOST = 32 };

/* How many lines there are, innermost first; 0 where they cannot be told. */
int ft_lines_of(const char *object, const uint64_t *offsets, int count, int *lines, int most);

#endif
