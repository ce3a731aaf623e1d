/* scratch.h: a folder to compile in, for one compile.
 * in -> out: TMPDIR -> a folder of this process; those of processes that are no more are removed.
 */
#ifndef RUNTIME_EMULATOR_SCRATCH_H
#define RUNTIME_EMULATOR_SCRATCH_H

#include <limits.h>

struct ft_scratch {
  char path[PATH_MAX - 32]; /* "": none; names of files have room behind it */
  int lock;                 /* the folder, open and locked for as long as its owner lives */
};

int ft_scratch_make(struct ft_scratch *scratch);
/* With all that is in it. */
void ft_scratch_remove(struct ft_scratch *scratch);

#endif
