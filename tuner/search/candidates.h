/* candidates.h: what is going to be tried, in which order.
 * in -> out: request + arch + what its score costs (NULL: nothing) + effort -> legal configs, the
 * default first, then by predicted time, the first of them from several tiles. */
#ifndef TUNER_CANDIDATES_H
#define TUNER_CANDIDATES_H

#include "generator/arch.h"
#include "generator/score/cost.h"
#include "tuner/search/tune_options.h"

struct ft_candidate {
  struct ft_config config;
  double predicted_us;
  bool is_default;
};

struct ft_candidates {
  struct ft_candidate *list; /* owned */
  int count;
  long product, legal; /* the raw space, and what the rules leave of it, before effort and shard */
};

int ft_candidates_make(struct ft_candidates *candidates, const struct ft_request *request,
                       const struct ft_arch *arch, const struct ft_score_costs *score,
                       const struct ft_tune_options *options);
/* Makes this config the second candidate, right behind the default. If the list does not have it,
 * it is added. */
int ft_candidates_lead(struct ft_candidates *candidates, const struct ft_config *config,
                       double predicted_us);
/* Drops, from the end, those predicted to take more than `share` of the first after the default,
 * and those beyond the first `most`. */
void ft_candidates_cut(struct ft_candidates *candidates, double share, int most);
void ft_candidates_free(struct ft_candidates *candidates);

#endif
