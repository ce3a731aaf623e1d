/* search.h: the loop over the candidates.
 * in -> out: rig + kind of measuring + candidates + options -> rows, summary. Knows no GPU; tune.c
 * puts a real one in. */
#ifndef TUNER_SEARCH_H
#define TUNER_SEARCH_H

#include "tuner/search/measuring.h"

struct ft_search_inputs {
  const struct ft_rig *rig;
  const struct ft_measuring *measuring;
  const struct ft_candidates *candidates;
  const struct ft_trial *stamp; /* what all rows have in common */
  const struct ft_tune_options *options;
};

/* Returns as ft_tune. */
int ft_search(const struct ft_search_inputs *in, struct ft_tune_summary *summary);

#endif
