/* child.h: a program run to its end.
 * in -> out: arguments -> what it wrote, what it exited with. */
#ifndef RUNTIME_EMULATOR_CHILD_H
#define RUNTIME_EMULATOR_CHILD_H

#include "generator/text.h"

/* Runs a program to its end, without a shell and with nothing to read. arguments: the
 * program first, a path or a name on PATH, NULL last. folder: where it runs, NULL: here. What it
 * writes is added to output. *code: what it exited with, or the signal that ended it, negative. */
int ft_child_run(const char *const *arguments, const char *folder, struct ft_text *output,
                 int *code);

#endif
