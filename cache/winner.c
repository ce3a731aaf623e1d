/* winner.c: which of the trials of one bucket on one device class wins.
 * in -> out: trials -> the same trials in winner's order, and one standing per candidate. */
#include "cache/winner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/samples.h"
#include "generator/status.h"

/* Finalists are measured in turn, so the clock's drift widens the spread of all alike without
 * making their order less sure: however wide it is, more than 1 % is never given away. */
static const double TIE_LEAST = 0.003, TIE_MOST = 0.01, TIE_SPREADS = 2.0;

double ft_tie_limit(double best_us, double spread_us) {
  return best_us + fmin(TIE_MOST * best_us, fmax(TIE_LEAST * best_us, TIE_SPREADS * spread_us));
}

static int order_numbers(double a, double b) {
  return (a > b) - (a < b);
}

/* -- candidates ----------------------------------------------------------------------------- */

/* 0: the same candidate. */
static int order_candidates(const struct ft_trial *a, const struct ft_trial *b) {
  if (a->outcome != b->outcome) return a->outcome < b->outcome ? -1 : 1;
  int order = ft_config_compare(&a->config, &b->config);
  if (order == 0) order = strcmp(a->policy, b->policy);
  if (order == 0) order = strcmp(a->nvrtc, b->nvrtc);
  if (order == 0) order = memcmp(&a->templates, &b->templates, sizeof a->templates);
  return order;
}

static int order_entries(const void *a, const void *b) {
  const struct ft_entry *const left = *(struct ft_entry *const *)a;
  const struct ft_entry *const right = *(struct ft_entry *const *)b;
  const int order = order_candidates(&left->trial, &right->trial);
  if (order != 0) return order;
  if (left->trial.at != right->trial.at) return left->trial.at < right->trial.at ? -1 : 1;
  return memcmp(&left->identity, &right->identity, sizeof left->identity);
}

/* The same trial may lie in a user file and in a layer. Doubles are neighbours after sorting. */
static void drop_doubles(struct ft_entry **entries, size_t *count) {
  size_t kept = 0;
  for (size_t i = 0; i < *count; i++) {
    if (kept > 0 && ft_digest_equal(&entries[kept - 1]->identity, &entries[i]->identity)) {
      free(entries[i]);
      continue;
    }
    entries[kept++] = entries[i];
  }
  *count = kept;
}

static size_t samples_of(const struct ft_trial *trial) {
  return trial->sample_count > 0 ? (size_t)trial->sample_count : 1;
}

/* A trial without samples counts as one sample, its median; its stated spread is then all there is.
 */
static int pool_samples(struct ft_entry *const *entries, struct ft_standing *standing) {
  size_t total = 0, filled = 0;
  for (size_t i = 0; i < standing->count; i++) total += samples_of(&entries[i]->trial);
  double *const samples = calloc(total, sizeof *samples);
  if (!samples) return ft_fail(FT_E_MEMORY, "no memory for %zu samples", total);

  double stated = 0;
  for (size_t i = 0; i < standing->count; i++) {
    const struct ft_trial *const trial = &entries[i]->trial;
    const bool sampled = trial->sample_count > 0;
    memcpy(&samples[filled], sampled ? trial->samples_us : &trial->median_us,
           samples_of(trial) * sizeof *samples);
    filled += samples_of(trial);
    if (!sampled && trial->spread_us > stated) stated = trial->spread_us;
    if (trial->is_default) standing->is_default = true;
  }
  const struct ft_summary_of_samples all = ft_samples_summarise(samples, total);
  standing->median_us = all.median;
  standing->spread_us = fmax(all.spread, stated);
  free(samples);
  return FT_OK;
}

static int make_standings(struct ft_entry *const *entries, size_t count,
                          struct ft_standing *standings, size_t *standing_count) {
  size_t made = 0;
  for (size_t first = 0; first < count;) {
    size_t end = first + 1;
    while (end < count && order_candidates(&entries[first]->trial, &entries[end]->trial) == 0)
      end++;
    standings[made] = (struct ft_standing){
        .first = first, .count = end - first, .trial = &entries[end - 1]->trial};
    FT_TRY(pool_samples(&entries[first], &standings[made]));
    made++;
    first = end;
  }
  *standing_count = made;
  return FT_OK;
}

/* -- order ---------------------------------------------------------------------------------- */

static int order_medians(const void *a, const void *b) {
  const struct ft_standing *const left = a, *const right = b;
  if (left->trial->outcome != right->trial->outcome)
    return left->trial->outcome < right->trial->outcome ? -1 : 1;
  int order = order_numbers(left->median_us, right->median_us);
  if (order == 0) order = order_numbers(left->spread_us, right->spread_us);
  if (order == 0) order = order_candidates(left->trial, right->trial);
  return order;
}

/* Of candidates as fast as one another: the default, then the one that takes less. */
static int order_tied(const void *a, const void *b) {
  const struct ft_standing *const left = a, *const right = b;
  const struct ft_trial *const x = left->trial, *const y = right->trial;
  if (left->is_default != right->is_default) return left->is_default ? -1 : 1;
  if (x->smem_bytes != y->smem_bytes) return x->smem_bytes < y->smem_bytes ? -1 : 1;
  if (x->registers != y->registers) return x->registers < y->registers ? -1 : 1;
  const int order = ft_config_compare(&x->config, &y->config);
  return order != 0 ? order : order_candidates(x, y);
}

/* The standings of one outcome, already by median. Times of failures mean nothing: no ties there.
 */
static void settle_ties(struct ft_standing *standings, size_t count) {
  const enum ft_outcome outcome = standings[0].trial->outcome;
  if (!ft_outcome_timed(outcome)) return;
  const double best = standings[0].median_us;
  const double limit = ft_tie_limit(best, standings[0].spread_us);
  size_t tied = 0;
  while (tied < count && standings[tied].median_us <= limit) standings[tied++].tied = true;
  qsort(standings, tied, sizeof *standings, order_tied);
}

void ft_standings_order(struct ft_standing *standings, size_t count) {
  if (count == 0) return;
  qsort(standings, count, sizeof *standings, order_medians);
  for (size_t first = 0; first < count;) {
    size_t end = first + 1;
    while (end < count && standings[end].trial->outcome == standings[first].trial->outcome) end++;
    settle_ties(standings + first, end - first);
    first = end;
  }
}

/* Entries follow their standings. */
static int reorder_entries(struct ft_entry **entries, size_t count, struct ft_standing *standings,
                           size_t standing_count) {
  struct ft_entry **const sorted = calloc(count, sizeof *sorted);
  if (!sorted) return ft_fail(FT_E_MEMORY, "no memory for %zu trials", count);
  size_t filled = 0;
  for (size_t i = 0; i < standing_count; i++) {
    memcpy(&sorted[filled], &entries[standings[i].first], standings[i].count * sizeof *sorted);
    standings[i].first = filled;
    filled += standings[i].count;
  }
  memcpy(entries, sorted, count * sizeof *sorted);
  free(sorted);
  return FT_OK;
}

int ft_winner_rank(struct ft_entry **entries, size_t *count, struct ft_standing **standings,
                   size_t *standing_count) {
  *standings = NULL;
  *standing_count = 0;
  if (*count == 0) return FT_OK;
  qsort(entries, *count, sizeof *entries, order_entries);
  drop_doubles(entries, count);

  int status = FT_OK;
  *standings = calloc(*count, sizeof **standings);
  if (!*standings) FT_GIVE_UP(ft_fail(FT_E_MEMORY, "no memory for %zu standings", *count));
  FT_CHECK(make_standings(entries, *count, *standings, standing_count));
  ft_standings_order(*standings, *standing_count);
  FT_CHECK(reorder_entries(entries, *count, *standings, *standing_count));
done:
  if (status != FT_OK) {
    free(*standings);
    *standings = NULL;
    *standing_count = 0;
  }
  return status;
}
