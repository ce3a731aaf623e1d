/* known_trials.h: what the store knows of a search's candidates already.
 * in -> out: store + stamp -> rows taken under the same conditions, by config. */
#ifndef TUNER_KNOWN_TRIALS_H
#define TUNER_KNOWN_TRIALS_H

#include <stdbool.h>

#include "cache/store.h"

struct ft_known {
  struct ft_trial *rows; /* owned */
  int count, capacity;
};

/* Collects the rows of the stamp's bucket and device with its templates, policy, driver and NVRTC.
 * Rows that cannot be read are left out, so their candidates are tried again. */
void ft_known_collect(struct ft_known *known, struct ft_store *store, const struct ft_trial *stamp);

/* The row of a config. The samples of several rows are pooled as the store pools them. */
bool ft_known_find(const struct ft_known *known, const struct ft_config *config,
                   struct ft_trial *trial);

void ft_known_free(struct ft_known *known);

#endif
