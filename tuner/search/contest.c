/* contest.c: the entrants of a search and their finals.
 * in -> out: screened trials -> the near-best measured in turn -> rows, winner.
 *
 * A candidate has one row. A screening takes few samples, at whatever clock the GPU has then. Only
 * their ratio to the samples of the best candidate so far, which runs in turn with it, is used. So
 * the screening samples of the near-best are not stored: those of the finals replace them, and no
 * row of a screening wins beside a row of finals. */
#include "tuner/search/contest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/samples.h"
#include "generator/status.h"
#include "tuner/search/trial_fill.h"

enum { FINALISTS = 12, ROUNDS_MOST = 3, AGAIN_MOST = 1 };
static const double NEAR = 1.05; /* a screening time up to 5 % above the best */

static bool had_finals(const struct ft_trial *trial) {
  return trial->outcome == FT_OUTCOME_OK;
}

static bool counts(const struct ft_contest *contest, const struct ft_entrant *entrant) {
  return !(contest->had_finals && entrant->recalled &&
           entrant->trial.outcome == FT_OUTCOME_SCREENED);
}

static bool is_near(const struct ft_contest *contest, const struct ft_entrant *entrant) {
  return (counts(contest, entrant) && entrant->screen_us <= NEAR * contest->best_us) ||
         entrant->trial.is_default;
}

static struct ft_entrant *best_screened(const struct ft_contest *contest) {
  struct ft_entrant *best = NULL;
  for (int n = 0; n < contest->count; n++) {
    struct ft_entrant *entrant = &contest->entrants[n];
    if (counts(contest, entrant) && (!best || entrant->screen_us < best->screen_us)) best = entrant;
  }
  return best;
}

int ft_contest_best(const struct ft_contest *contest, int most, const struct ft_entrant **best) {
  int count = 0;
  for (int n = 0; n < contest->count; n++) {
    const struct ft_entrant *const entrant = &contest->entrants[n];
    if (!counts(contest, entrant)) continue;
    int at = count < most ? count : most;
    while (at > 0 && entrant->screen_us < best[at - 1]->screen_us) at--;
    if (at == most) continue;
    if (count < most) count++;
    for (int i = count - 1; i > at; i--) best[i] = best[i - 1];
    best[at] = entrant;
  }
  return count;
}

void ft_contest_record(struct ft_contest *contest, const struct ft_trial *trial) {
  if (contest->rig->record(contest->rig->payload, trial) == FT_OK) return;
  if (contest->unstored++ == 0)
    snprintf(contest->unstored_why, sizeof contest->unstored_why, "%s", ft_detail());
}

static void record(struct ft_contest *contest, struct ft_entrant *entrant) {
  if (!entrant->recorded) ft_contest_record(contest, &entrant->trial);
  entrant->recorded = true;
}

static int grow(struct ft_contest *contest) {
  if (contest->count < contest->capacity) return FT_OK;
  const int capacity = contest->capacity ? 2 * contest->capacity : 64;
  struct ft_entrant *entrants =
      realloc(contest->entrants, (size_t)capacity * sizeof *contest->entrants);
  if (entrants) contest->entrants = entrants;
  struct ft_standing *standings =
      realloc(contest->standings, (size_t)capacity * sizeof *contest->standings);
  if (standings) contest->standings = standings;
  if (!entrants || !standings) return ft_fail(FT_E_MEMORY, "no memory for %d entrants", capacity);
  contest->capacity = capacity;
  return FT_OK;
}

int ft_contest_add(struct ft_contest *contest, const struct ft_trial *trial, double screen_us,
                   struct ft_kernel *kernel, void *loaded, bool recalled) {
  const int status = grow(contest);
  if (status != FT_OK) {
    if (loaded) contest->rig->unload(contest->rig->payload, loaded);
    ft_kernel_free(kernel);
    return status;
  }
  contest->entrants[contest->count++] = (struct ft_entrant){.trial = *trial,
                                                            .kernel = *kernel,
                                                            .loaded = loaded,
                                                            .screen_us = screen_us,
                                                            .recalled = recalled,
                                                            .recorded = recalled};
  if (recalled && had_finals(trial)) contest->had_finals = true;
  contest->best_us = best_screened(contest)->screen_us;
  for (int n = 0; n < contest->count; n++) { /* a new best may put earlier ones out of reach */
    if (!is_near(contest, &contest->entrants[n])) record(contest, &contest->entrants[n]);
  }
  return FT_OK;
}

/* ---- the decision ---- */

struct ft_entrant *ft_contest_winner(struct ft_contest *contest) {
  for (int n = 0; n < contest->count; n++) {
    const struct ft_trial *const trial = &contest->entrants[n].trial;
    contest->standings[n] = (struct ft_standing){.first = (size_t)n,
                                                 .count = 1,
                                                 .trial = trial,
                                                 .median_us = trial->median_us,
                                                 .spread_us = trial->spread_us,
                                                 .is_default = trial->is_default};
  }
  ft_standings_order(contest->standings, (size_t)contest->count);
  return contest->count > 0 ? &contest->entrants[contest->standings[0].first] : NULL;
}

static const struct ft_entrant *fastest(const struct ft_contest *contest) {
  const struct ft_entrant *best = NULL;
  for (int n = 0; n < contest->count; n++) {
    const struct ft_entrant *entrant = &contest->entrants[n];
    if (!best || ft_trial_beats(&entrant->trial, &best->trial)) best = entrant;
  }
  return best;
}

/* ---- finals ---- */

static int load(struct ft_contest *contest, struct ft_entrant *entrant) {
  if (entrant->loaded) return FT_OK;
  const struct ft_rig *rig = contest->rig;
  if (!entrant->kernel.image)
    FT_TRY(rig->compile(rig->payload, &entrant->trial.config, &entrant->kernel));
  return rig->load(rig->payload, &entrant->trial.config, &entrant->kernel, &entrant->loaded);
}

/* The incumbent stays until one is clearly faster. The best of many near equals had luck in its
 * screening: if each of them became what the others' times are scaled by, these would become less
 * and less. */
static struct ft_entrant *keep_incumbent(struct ft_contest *contest) {
  static const double CLEARLY = 0.995;
  struct ft_entrant *const best = best_screened(contest);
  struct ft_entrant *const kept =
      contest->incumbent > 0 ? &contest->entrants[contest->incumbent - 1] : NULL;
  if (!best) return NULL;
  if (kept && counts(contest, kept) && best->screen_us > CLEARLY * kept->screen_us) return kept;
  contest->incumbent = (int)(best - contest->entrants) + 1;
  return best;
}

int ft_contest_incumbent(struct ft_contest *contest, struct ft_incumbent *incumbent) {
  struct ft_entrant *const kept = keep_incumbent(contest);
  *incumbent = (struct ft_incumbent){0};
  if (!kept) return FT_OK;
  FT_TRY(load(contest, kept));
  *incumbent = (struct ft_incumbent){kept->loaded, kept->screen_us};
  return FT_OK;
}

static void scale_timing(struct ft_timing *timing, double factor) {
  for (int n = 0; n < timing->sample_count; n++) timing->samples_us[n] *= factor;
  ft_timing_summarise(timing);
}

/* The median of the last third of the samples over that of the first third. */
static double late_over_early(const struct ft_timing *timing) {
  const int third = timing->sample_count / 3;
  double early[FT_TRIAL_SAMPLES], late[FT_TRIAL_SAMPLES];
  if (third == 0) return 1;
  memcpy(early, timing->samples_us, (size_t)third * sizeof *early);
  memcpy(late, timing->samples_us + timing->sample_count - third, (size_t)third * sizeof *late);
  return ft_samples_summarise(late, (size_t)third).median /
         ft_samples_summarise(early, (size_t)third).median;
}

/* Whether all contenders became slower during the round, or all faster, each by more than a tie
 * allows. Then it was the GPU that changed: it grew hot, was throttled, or others use it. */
static bool drifted(const struct ft_timing *timings, int count) {
  int slower = 0, faster = 0;
  if (count < 2) return false; /* it is compared with nothing */
  for (int n = 0; n < count; n++) {
    const double us = timings[n].median_us, change = late_over_early(&timings[n]);
    const double tie = ft_tie_limit(us, timings[n].spread_us) / us;
    slower += change > tie;
    faster += 1 / change > tie;
  }
  return slower == count || faster == count;
}

/* Measures in turn, and again while the GPU changes meanwhile. */
static int measure_steadily(struct ft_contest *contest, void *const *loaded, int count,
                            struct ft_timing *timings) {
  const struct ft_rig *const rig = contest->rig;
  FT_TRY(rig->measure_in_turn(rig->payload, loaded, count, timings));
  for (int again = 0; drifted(timings, count); again++) {
    if (again == AGAIN_MOST) {
      contest->unsteady++;
      return FT_OK;
    }
    contest->rounds_again++;
    FT_TRY(rig->measure_in_turn(rig->payload, loaded, count, timings));
  }
  return FT_OK;
}

/* Measures the finalists in turn. Where one of them had its finals before, it is the last: its row
 * stays, and its time now against its time then tells how the clock has changed. The times of the
 * others are scaled to the clock that it had then. */
static int run_round(struct ft_contest *contest, struct ft_entrant *const *finalists, int count) {
  struct ft_timing timings[FINALISTS + 2];
  void *loaded[FINALISTS + 2] = {0};
  for (int n = 0; n < count; n++) {
    FT_TRY(load(contest, finalists[n]));
    loaded[n] = finalists[n]->loaded;
  }
  FT_TRY(measure_steadily(contest, loaded, count, timings));
  const struct ft_entrant *const champion = finalists[count - 1];
  const double factor =
      had_finals(&champion->trial) ? champion->trial.median_us / timings[count - 1].median_us : 1;
  for (int n = 0; n < count && !had_finals(&finalists[n]->trial); n++) {
    scale_timing(&timings[n], factor);
    ft_trial_set_timing(&finalists[n]->trial, &timings[n]);
    ft_trial_end(&finalists[n]->trial, FT_OUTCOME_OK, "");
    finalists[n]->recorded = false;
    contest->rig->keep(contest->rig->payload,
                       &finalists[n]->kernel); /* a failure to keep it costs a compile later */
    record(contest, finalists[n]);
  }
  return FT_OK;
}

static int by_screening(const void *a, const void *b) {
  const struct ft_entrant *x = *(struct ft_entrant *const *)a, *y = *(struct ft_entrant *const *)b;
  if (x->screen_us != y->screen_us) return x->screen_us < y->screen_us ? -1 : 1;
  return ft_config_compare(&x->trial.config, &y->trial.config);
}

/* Up to `most` entrants that have not had their finals, the best by screening first, none slower
 * than `limit`. */
static int pick(struct ft_contest *contest, double limit, int most, struct ft_entrant **finalists,
                int *count) {
  struct ft_entrant **order = malloc((size_t)contest->count * sizeof *order);
  if (!order) return ft_fail(FT_E_MEMORY, "no memory for %d entrants", contest->count);
  int near = 0;
  for (int n = 0; n < contest->count; n++) {
    struct ft_entrant *entrant = &contest->entrants[n];
    if (counts(contest, entrant) && !had_finals(&entrant->trial) && entrant->screen_us <= limit)
      order[near++] = entrant;
  }
  qsort(order, (size_t)near, sizeof *order, by_screening);
  for (int n = 0; n < near && n < most; n++) finalists[(*count)++] = order[n];
  free(order);
  return FT_OK;
}

static void add_default(struct ft_contest *contest, struct ft_entrant **finalists, int *count) {
  for (int n = 0; n < contest->count; n++) {
    struct ft_entrant *entrant = &contest->entrants[n];
    if (!entrant->trial.is_default || had_finals(&entrant->trial)) continue;
    for (int s = 0; s < *count; s++) {
      if (finalists[s] == entrant) return;
    }
    finalists[(*count)++] = entrant;
  }
}

/* An earlier run held the finals, and no new entrant is near the best. */
static bool nothing_new(const struct ft_contest *contest) {
  if (!contest->had_finals) return false;
  for (int n = 0; n < contest->count; n++) {
    const struct ft_entrant *entrant = &contest->entrants[n];
    if (!entrant->recorded && is_near(contest, entrant)) return false;
  }
  return true;
}

int ft_contest_finals(struct ft_contest *contest, const volatile sig_atomic_t *stop) {
  if (contest->count == 0 || nothing_new(contest)) return FT_OK;
  double limit = NEAR * contest->best_us;
  for (int round = 0; round < ROUNDS_MOST && !(stop && *stop); round++) {
    struct ft_entrant *finalists[FINALISTS + 2];
    int count = 0;
    FT_TRY(pick(contest, limit, FINALISTS, finalists, &count));
    if (round == 0) add_default(contest, finalists, &count);
    if (count == 0) break;
    struct ft_entrant *const champion = ft_contest_winner(contest);
    if (had_finals(&champion->trial)) finalists[count++] = champion;
    FT_TRY(run_round(contest, finalists, count));
    /* An entrant that looked as good in the screening as the best of the finals did has to run
     * beside it. */
    const struct ft_entrant *best = fastest(contest);
    const double best_us = best->trial.median_us;
    limit = best->screen_us * ft_tie_limit(best_us, best->trial.spread_us) / best_us;
  }
  ft_contest_flush(contest);
  return FT_OK;
}

void ft_contest_flush(struct ft_contest *contest) {
  for (int n = 0; n < contest->count; n++) record(contest, &contest->entrants[n]);
}

void ft_contest_close(struct ft_contest *contest) {
  for (int n = 0; n < contest->count; n++) {
    struct ft_entrant *entrant = &contest->entrants[n];
    if (entrant->loaded) contest->rig->unload(contest->rig->payload, entrant->loaded);
    ft_kernel_free(&entrant->kernel);
  }
  free(contest->entrants);
  free(contest->standings);
  *contest = (struct ft_contest){0};
}
