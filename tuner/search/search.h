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

struct ft_search;

/* Recalls what is known and begins to compile the rest, in threads of its own. Nothing is measured
 * yet, so this can be done by any thread while another search is on the GPU. What the inputs point
 * to must outlive the search. */
int ft_search_open(struct ft_search **search, const struct ft_search_inputs *in);
/* Returns what ft_tune returns. Once for each search. */
int ft_search_run(struct ft_search *search, struct ft_tune_summary *summary);
void ft_search_close(struct ft_search *search); /* NULL: nothing */

/* The three, one after the other. */
int ft_search(const struct ft_search_inputs *in, struct ft_tune_summary *summary);

#endif
