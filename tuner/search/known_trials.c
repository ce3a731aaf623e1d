/* known_trials.c: rows of earlier runs, which spare their candidates another trial.
 * in -> out: store + stamp -> the rows taken under the same conditions. */
#include "tuner/search/known_trials.h"

#include <stdlib.h>
#include <string.h>

#include "tuner/search/trial_fill.h"

struct collector {
  struct ft_known *known;
  const struct ft_trial *stamp;
};

/* The same templates, compiler, driver and policy. Predictions name no driver, so a prediction and
 * a measurement never stand in for each other. A row names no NVRTC when its candidate was never
 * compiled. */
static bool same_conditions(const struct ft_trial *row, const struct ft_trial *stamp) {
  return ft_digest_equal(&row->templates, &stamp->templates) &&
         strcmp(row->policy, stamp->policy) == 0 && strcmp(row->driver, stamp->driver) == 0 &&
         (row->nvrtc[0] == '\0' || stamp->nvrtc[0] == '\0' ||
          strcmp(row->nvrtc, stamp->nvrtc) == 0);
}

static bool collect(void *payload, const struct ft_trial *row) {
  const struct collector *collector = payload;
  struct ft_known *known = collector->known;
  if (!same_conditions(row, collector->stamp)) return true;
  if (known->count == known->capacity) {
    const int capacity = known->capacity ? 2 * known->capacity : 256;
    struct ft_trial *grown = realloc(known->rows, (size_t)capacity * sizeof *grown);
    if (!grown) return false;
    known->rows = grown;
    known->capacity = capacity;
  }
  known->rows[known->count++] = *row;
  return true;
}

void ft_known_collect(struct ft_known *known, struct ft_store *store,
                      const struct ft_trial *stamp) {
  struct collector collector = {.known = known, .stamp = stamp};
  *known = (struct ft_known){0};
  ft_store_trials(store, &stamp->bucket, stamp->device, collect, &collector);
}

/* Adds the samples of a second row as far as there is room for them. */
static void pool(struct ft_trial *trial, const struct ft_trial *row) {
  struct ft_timing timing = {.sample_count = trial->sample_count,
                             .sm_clock_mhz = trial->sm_clock_mhz};
  memcpy(timing.samples_us, trial->samples_us, sizeof timing.samples_us);
  for (int n = 0; n < row->sample_count && timing.sample_count < FT_TRIAL_SAMPLES; n++) {
    timing.samples_us[timing.sample_count++] = row->samples_us[n];
  }
  ft_timing_summarise(&timing);
  ft_trial_set_timing(trial, &timing);
}

bool ft_known_find(const struct ft_known *known, const struct ft_config *config,
                   struct ft_trial *trial) {
  bool found = false;
  for (int n = 0; n < known->count; n++) {
    const struct ft_trial *row = &known->rows[n];
    if (ft_config_compare(&row->config, config) != 0) continue;
    if (found && row->outcome == trial->outcome && ft_outcome_ran(row->outcome)) {
      pool(trial, row);
    } else if (!found || (ft_outcome_ran(row->outcome) && row->outcome < trial->outcome)) {
      *trial = *row; /* a config that ran right in any run counts as right */
    }
    found = true;
  }
  return found;
}

void ft_known_free(struct ft_known *known) {
  free(known->rows);
  *known = (struct ft_known){0};
}
