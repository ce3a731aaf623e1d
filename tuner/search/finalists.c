/* finalists.c: the entrants of a search and their finals.
 * in -> out: screened trials -> in-turn samples of the near-best -> rows, winner.
 *
 * A candidate has one row. Its screening samples are few, and of the clock that the GPU had then:
 * what counts of them is their ratio to those of the best so far, taken in turn with them. So for
 * the near-best they are not stored but replaced by the finals', and no row of a screening wins
 * beside one of finals. */
#include "tuner/search/finalists.h"

#include <stdlib.h>

#include "cache/winner.h"
#include "generator/status.h"

enum { FINALISTS = 12, HEATS = 3 };
static const double NEAR = 1.05; /* within 5 % of the best in the screening */

static bool had_finals(const struct ft_trial *trial) {
  return trial->outcome == FT_OUTCOME_OK;
}

static bool counts(const struct ft_field *field, const struct ft_entrant *entrant) {
  return !(field->had_finals && entrant->recalled && entrant->trial.outcome == FT_OUTCOME_SCREENED);
}

static bool is_near(const struct ft_field *field, const struct ft_entrant *entrant) {
  return (counts(field, entrant) && entrant->screen_us <= NEAR * field->best_us) ||
         entrant->trial.is_default;
}

static struct ft_entrant *best_screened(const struct ft_field *field) {
  struct ft_entrant *best = NULL;
  for (int n = 0; n < field->count; n++) {
    struct ft_entrant *entrant = &field->entrants[n];
    if (counts(field, entrant) && (!best || entrant->screen_us < best->screen_us)) best = entrant;
  }
  return best;
}

static int record(struct ft_field *field, struct ft_entrant *entrant) {
  if (entrant->recorded) return FT_OK;
  FT_TRY(field->rig->record(field->rig->payload, &entrant->trial));
  entrant->recorded = true;
  return FT_OK;
}

static int grow(struct ft_field *field) {
  if (field->count < field->capacity) return FT_OK;
  const int capacity = field->capacity ? 2 * field->capacity : 64;
  struct ft_entrant *grown = realloc(field->entrants, (size_t)capacity * sizeof *grown);
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory for %d entrants", capacity);
  field->entrants = grown;
  field->capacity = capacity;
  return FT_OK;
}

int ft_field_add(struct ft_field *field, const struct ft_trial *trial, double screen_us,
                 struct ft_kernel *kernel, void *loaded, bool recalled) {
  const int status = grow(field);
  if (status != FT_OK) {
    if (loaded) field->rig->unload(field->rig->payload, loaded);
    ft_kernel_free(kernel);
    return status;
  }
  field->entrants[field->count++] = (struct ft_entrant){.trial = *trial,
                                                        .kernel = *kernel,
                                                        .loaded = loaded,
                                                        .screen_us = screen_us,
                                                        .recalled = recalled,
                                                        .recorded = recalled};
  if (recalled && had_finals(trial)) field->had_finals = true;
  field->best_us = best_screened(field)->screen_us;
  for (int n = 0; n < field->count; n++) { /* a new best may have decided about earlier ones too */
    if (!is_near(field, &field->entrants[n])) FT_TRY(record(field, &field->entrants[n]));
  }
  return FT_OK;
}

/* ---- the decision ---- */

/* Among equals. */
static bool preferred(const struct ft_trial *a, const struct ft_trial *b) {
  return ft_tie_order(a, a->is_default, b, b->is_default) < 0;
}

static const struct ft_entrant *fastest(const struct ft_field *field) {
  const struct ft_entrant *best = NULL;
  for (int n = 0; n < field->count; n++) {
    const struct ft_entrant *entrant = &field->entrants[n];
    if (!best || ft_trial_beats(&entrant->trial, &best->trial)) best = entrant;
  }
  return best;
}

const struct ft_entrant *ft_field_winner(const struct ft_field *field) {
  const struct ft_entrant *best = fastest(field), *winner = best;
  if (!best) return NULL;
  const double limit = ft_tie_limit(best->trial.median_us, best->trial.spread_us);
  for (int n = 0; n < field->count; n++) {
    const struct ft_entrant *entrant = &field->entrants[n];
    if (entrant->trial.outcome == best->trial.outcome && entrant->trial.median_us <= limit &&
        preferred(&entrant->trial, &winner->trial))
      winner = entrant;
  }
  return winner;
}

/* ---- finals ---- */

static int load(struct ft_field *field, struct ft_entrant *entrant) {
  if (entrant->loaded) return FT_OK;
  const struct ft_rig *rig = field->rig;
  if (!entrant->kernel.image)
    FT_TRY(rig->compile(rig->payload, &entrant->trial.config, &entrant->kernel));
  return rig->load(rig->payload, &entrant->trial.config, &entrant->kernel, &entrant->loaded);
}

int ft_field_pace(struct ft_field *field, struct ft_pace *pace) {
  struct ft_entrant *const best = best_screened(field);
  *pace = (struct ft_pace){0};
  if (!best) return FT_OK;
  FT_TRY(load(field, best));
  *pace = (struct ft_pace){best->loaded, best->screen_us};
  return FT_OK;
}

static void scale_timing(struct ft_timing *timing, double factor) {
  for (int n = 0; n < timing->sample_count; n++) timing->samples_us[n] *= factor;
  ft_timing_summarise(timing);
}

/* One that had its finals, if any has, runs along as the last: its row stands, and the times of the
 * others are brought to the clock of then by what it takes now. */
static int heat(struct ft_field *field, struct ft_entrant *const *starters, int count) {
  struct ft_timing timings[FINALISTS + 2];
  void *loaded[FINALISTS + 2] = {0};
  for (int n = 0; n < count; n++) {
    FT_TRY(load(field, starters[n]));
    loaded[n] = starters[n]->loaded;
  }
  FT_TRY(field->rig->measure_in_turn(field->rig->payload, loaded, count, timings));
  const struct ft_entrant *const held = starters[count - 1];
  const double factor =
      had_finals(&held->trial) ? held->trial.median_us / timings[count - 1].median_us : 1;
  for (int n = 0; n < count && !had_finals(&starters[n]->trial); n++) {
    scale_timing(&timings[n], factor);
    ft_trial_set_timing(&starters[n]->trial, &timings[n]);
    ft_trial_end(&starters[n]->trial, FT_OUTCOME_OK, "");
    starters[n]->recorded = false;
    field->rig->keep(field->rig->payload,
                     &starters[n]->kernel); /* a kernel not kept costs a compile */
    FT_TRY(record(field, starters[n]));
  }
  return FT_OK;
}

static int by_screening(const void *a, const void *b) {
  const struct ft_entrant *x = *(struct ft_entrant *const *)a, *y = *(struct ft_entrant *const *)b;
  if (x->screen_us != y->screen_us) return x->screen_us < y->screen_us ? -1 : 1;
  return ft_config_compare(&x->trial.config, &y->trial.config);
}

/* The best by screening within `limit`, without those that had their finals. */
static int pick(struct ft_field *field, double limit, int most, struct ft_entrant **starters,
                int *count) {
  struct ft_entrant **order = malloc((size_t)field->count * sizeof *order);
  if (!order) return ft_fail(FT_E_MEMORY, "no memory for %d entrants", field->count);
  int near = 0;
  for (int n = 0; n < field->count; n++) {
    struct ft_entrant *entrant = &field->entrants[n];
    if (counts(field, entrant) && !had_finals(&entrant->trial) && entrant->screen_us <= limit)
      order[near++] = entrant;
  }
  qsort(order, (size_t)near, sizeof *order, by_screening);
  for (int n = 0; n < near && n < most; n++) starters[(*count)++] = order[n];
  free(order);
  return FT_OK;
}

static void add_default(struct ft_field *field, struct ft_entrant **starters, int *count) {
  for (int n = 0; n < field->count; n++) {
    struct ft_entrant *entrant = &field->entrants[n];
    if (!entrant->trial.is_default || had_finals(&entrant->trial)) continue;
    for (int s = 0; s < *count; s++) {
      if (starters[s] == entrant) return;
    }
    starters[(*count)++] = entrant;
  }
}

/* An earlier run held the finals, and none that is new is near. */
static bool nothing_new(const struct ft_field *field) {
  if (!field->had_finals) return false;
  for (int n = 0; n < field->count; n++) {
    const struct ft_entrant *entrant = &field->entrants[n];
    if (!entrant->recorded && is_near(field, entrant)) return false;
  }
  return true;
}

int ft_field_finals(struct ft_field *field, const volatile sig_atomic_t *stop) {
  if (field->count == 0 || nothing_new(field)) return FT_OK;
  double limit = NEAR * field->best_us;
  for (int round = 0; round < HEATS && !(stop && *stop); round++) {
    struct ft_entrant *starters[FINALISTS + 2];
    int count = 0;
    FT_TRY(pick(field, limit, FINALISTS, starters, &count));
    if (round == 0) add_default(field, starters, &count);
    if (count == 0) break;
    struct ft_entrant *held = (struct ft_entrant *)(uintptr_t)ft_field_winner(field);
    if (had_finals(&held->trial)) starters[count++] = held;
    FT_TRY(heat(field, starters, count));
    /* Who looked as good in the screening as the finals' best did has to run beside it. */
    const struct ft_entrant *best = fastest(field);
    const double best_us = best->trial.median_us;
    limit = best->screen_us * ft_tie_limit(best_us, best->trial.spread_us) / best_us;
  }
  return ft_field_flush(field);
}

int ft_field_flush(struct ft_field *field) {
  int status = FT_OK;
  for (int n = 0; n < field->count; n++) {
    const int recorded = record(field, &field->entrants[n]);
    if (status == FT_OK) status = recorded;
  }
  return status;
}

void ft_field_close(struct ft_field *field) {
  for (int n = 0; n < field->count; n++) {
    struct ft_entrant *entrant = &field->entrants[n];
    if (entrant->loaded) field->rig->unload(field->rig->payload, entrant->loaded);
    ft_kernel_free(&entrant->kernel);
  }
  free(field->entrants);
  *field = (struct ft_field){0};
}
