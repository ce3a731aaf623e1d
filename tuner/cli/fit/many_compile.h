/* many_compile.h: the kernels of a list, compiled into the session's cache.
 * in -> out: session, GPU, list -> kernels in kernels.db, with the recipes that they are found by;
 * how many. Those that are there are not compiled again, so what was cut off goes on where it
 * stopped. */
#ifndef TUNER_MANY_COMPILE_H
#define TUNER_MANY_COMPILE_H

#include "generator/arch.h"
#include "runtime/fatune.h"
#include "tuner/cli/fit/many_list.h"

struct ft_many_compiled {
  int kernels, compiled,
      failed; /* different ones; those of them that were not there; items without one */
  double seconds;
  bool out_of_time;
};

/* Failures of single items are a line on stderr each. */
int ft_many_compile(fatune_session *session, const struct ft_arch *arch,
                    const struct ft_many_list *list, int jobs, double seconds,
                    struct ft_many_compiled *done);

#endif
