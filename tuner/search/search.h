/* search.h: the loop over the candidates.
 * in -> out: rig + candidates + options -> rows, summary. Knows no GPU; tune.c puts a real one in.
 */
#ifndef TUNER_SEARCH_H
#define TUNER_SEARCH_H

#include "tuner/search/candidates.h"
#include "tuner/search/rig.h"

/* stamp: what all rows have in common. Returns as ft_tune. */
int ft_search(const struct ft_rig *rig, const struct ft_candidates *candidates,
              const struct ft_trial *stamp, const struct ft_tune_options *options,
              struct ft_tune_summary *summary);

#endif
