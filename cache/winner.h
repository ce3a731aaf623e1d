/* winner.h: which of the trials of one bucket on one device class wins. No database here.
 * in -> out: trials -> the same trials in winner's order, and one standing per candidate.
 *
 * Trials of the same config, policy, templates, compiler and outcome are one candidate: their
 * samples are pooled. Candidates within ft_tie_limit of the best median are
 * tied: noise does not choose between them; the default config, then less shared memory, then fewer
 * registers, then ft_config_compare does. So equal data, in whatever order, gives equal choices. */
#ifndef CACHE_WINNER_H
#define CACHE_WINNER_H

#include <stdbool.h>
#include <stddef.h>

#include "cache/trial.h"

struct ft_entry { /* a trial as it came from a store */
  struct ft_trial trial;
  struct ft_digest identity; /* of its text */
};

struct ft_standing {            /* one candidate */
  size_t first, count;          /* its entries */
  const struct ft_trial *trial; /* the latest of them */
  double median_us, spread_us;  /* of all samples together */
  bool is_default;
  bool tied; /* with the best of its outcome */
};

/* The slowest median that is still as good as the best one: twice the best's spread above it, but
 * at least 0.3 % and at most 1 %. */
double ft_tie_limit(double best_us, double spread_us);

/* Puts standings into winner's order and says which are tied: by outcome; in each by median, the
 * tied ones first, among them the default, then less shared memory, fewer registers,
 * ft_config_compare. `first` and `count` are the caller's. */
void ft_standings_order(struct ft_standing *standings, size_t count);

/* Sorts entries (measured before predicted before failed; the winner first), drops double ones and
 * makes the standings, to be freed by the caller. *count shrinks to what is left. */
int ft_winner_rank(struct ft_entry **entries, size_t *count, struct ft_standing **standings,
                   size_t *standing_count);

#endif
