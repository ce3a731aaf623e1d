/* search.h: the loop over the candidates.
 * in -> out: rig + kind of measuring + candidates + options -> rows, summary. It knows no GPU:
 * tune.c gives it the rig of one. */
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

/* Returns what ft_tune returns. */
int ft_search(const struct ft_search_inputs *in, struct ft_tune_summary *summary);

#endif
