/* search.c: candidates one by one: recalled, or compiled and attempted; then the finals.
 * in -> out: rig + kind of measuring + candidates -> one row each, summary, winner.
 * A failing candidate gets its row and the search goes on, also where the row cannot be stored. It
 * ends early only if the GPU is lost, the user stops it, the budget is spent, or no candidate has
 * been better for long. */
#include "tuner/search/search.h"

#include <stdio.h>
#include <stdlib.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "tuner/search/compile_pool.h"
#include "tuner/search/trial_fill.h"

enum { BEST_FEW = 3 };

static const double IMPROVEMENT = 0.995; /* an improvement by less than 0.5 % is noise */

struct ft_search {
  struct ft_search_inputs in;
  struct ft_tune_summary *summary; /* of the run */
  struct ft_compile_pool *pool;
  struct ft_contest contest;
  struct ft_trial *known; /* by candidate: its row from the store */
  bool *is_known;
  int known_count;
  double begin;       /* of the run */
  double patience_us; /* the best time when `since` was last set to 0 */
  int since;          /* candidates tried since then */
  char unfit[320];    /* what was wrong with the first that is not fit; "": all are */
  bool prepared, told;
};

/* A failure with its detail, which calls made before it is returned would overwrite. */
struct failure {
  int status;
  char detail[1024];
};

static struct failure keep_failure(int status) {
  struct failure failure = {.status = status};
  if (status != FT_OK) snprintf(failure.detail, sizeof failure.detail, "%s", ft_detail());
  return failure;
}

/* The failure if there was one, else the status `rest`. */
static int first_of(const struct failure *failure, int rest) {
  return failure->status != FT_OK ? ft_fail(failure->status, "%s", failure->detail) : rest;
}

/* ---- what all candidates have in common ---- */

static void count_outcome(struct ft_tune_summary *summary, const struct ft_trial *trial) {
  summary->tried += 1;
  switch (trial->outcome) {
  case FT_OUTCOME_OK:
  case FT_OUTCOME_SCREENED:
  case FT_OUTCOME_PREDICTED: summary->ok += 1; break;
  case FT_OUTCOME_WRONG: summary->wrong += 1; break;
  case FT_OUTCOME_SPILLED: summary->spilled += 1; break;
  default: summary->failed += 1; break;
  }
}

static void keep_first_unfit(struct ft_search *search, const struct ft_trial *trial) {
  if (search->unfit[0] != '\0' || ft_outcome_timed(trial->outcome)) return;
  snprintf(search->unfit, sizeof search->unfit, "%s%s%s", ft_outcome_name(trial->outcome),
           trial->reason[0] != '\0' ? ": " : "", trial->reason);
}

static void report(const struct ft_search *search, const struct ft_trial *trial) {
  const struct ft_tune_options *options = search->in.options;
  if (!options->progress) return;
  const int done = search->summary->tried, total = search->in.candidates->count;
  const double elapsed = ft_seconds_now() - search->begin;
  const struct ft_tune_progress progress = {.done = done,
                                            .total = total,
                                            .elapsed_seconds = elapsed,
                                            .eta_seconds = elapsed / done * (total - done),
                                            .best_us = search->contest.best_us,
                                            .trial = trial};
  options->progress(options->payload, &progress);
}

static bool stopped(const struct ft_search *search) {
  const volatile sig_atomic_t *stop = search->in.options->stop;
  return stop && *stop;
}

static bool out_of_time(const struct ft_search *search) {
  const double budget = search->in.options->budget_seconds;
  return budget > 0 && search->summary->tried > 0 && ft_seconds_now() - search->begin > budget;
}

/* Known candidates come first, in an order that is not the one in which they were tried. So what
 * they say of further ones is how many they are, if they had their finals, and else nothing. */
static void count_known(struct ft_search *search) {
  search->patience_us = search->contest.best_us;
  search->since = search->contest.had_finals ? search->known_count - 1 : 0;
}

/* Whether the search goes on after a candidate. */
static bool patient(struct ft_search *search) {
  if (search->summary->tried < search->known_count) return true;
  const int patience = search->in.measuring->patience;
  const double best_us = search->contest.best_us;
  if (best_us == 0) return true; /* no candidate has run yet, so any that runs is an improvement */
  search->since += 1;
  if (search->patience_us == 0 || best_us < IMPROVEMENT * search->patience_us) {
    search->patience_us = best_us;
    search->since = 0;
  }
  if (search->summary->tried == search->known_count) count_known(search);
  return search->in.options->effort != FT_EFFORT_NORMAL || patience == 0 ||
         search->since < patience;
}

/* ---- one candidate ---- */

static void recall_known(struct ft_search *search) {
  const struct ft_rig *rig = search->in.rig;
  const struct ft_candidates *candidates = search->in.candidates;
  if (search->in.options->again) return;
  for (int n = 0; n < candidates->count; n++) {
    search->is_known[n] = rig->recall(rig->payload, &candidates->list[n].config, &search->known[n]);
    search->known_count += search->is_known[n];
  }
}

static int take_known(struct ft_search *search, int index, struct ft_trial *trial) {
  struct ft_kernel none = {0};
  *trial = search->known[index];
  search->summary->recalled += 1;
  if (!ft_outcome_timed(trial->outcome)) return FT_OK;
  return ft_contest_add(&search->contest, trial, trial->median_us, &none, NULL, true);
}

/* Other failures, such as a missing NVRTC, a broken template or no memory, end the search. */
static bool is_fault_of_candidate(int status) {
  return status == FT_E_COMPILE || status == FT_E_ARGUMENT || status == FT_E_UNSUPPORTED;
}

static void watch(const struct ft_search *search, const struct ft_trial *trial) {
  const struct ft_tune_options *options = search->in.options;
  if (options->watch && search->in.measuring->has_finals) options->watch(options->payload, trial);
}

static int attempt_one(const struct ft_search *search, int index,
                       const struct ft_compiled *compiled, const struct ft_incumbent *incumbent,
                       struct ft_attempt *attempt) {
  const struct ft_measuring *measuring = search->in.measuring;
  const struct ft_candidate *candidate = &search->in.candidates->list[index];
  ft_trial_begin(&attempt->trial, search->in.stamp, candidate);
  if (compiled->status != FT_OK) {
    ft_trial_end(&attempt->trial, FT_OUTCOME_COMPILE, compiled->detail);
    return FT_OK;
  }
  ft_trial_set_kernel(&attempt->trial, &compiled->kernel);
  if (ft_trial_ruled_out(&attempt->trial, candidate, &compiled->kernel)) return FT_OK;
  watch(search, &attempt->trial);
  return measuring->attempt(measuring->payload, index, &compiled->kernel, incumbent, attempt);
}

/* Records the trial, or, if it has a time, puts it into the contest with its kernel, where its row
 * may wait for the finals. */
static int settle(struct ft_search *search, const struct ft_attempt *attempt,
                  struct ft_compiled *compiled) {
  if (!ft_outcome_timed(attempt->trial.outcome)) {
    ft_contest_record(&search->contest, &attempt->trial);
    return FT_OK;
  }
  const int status = ft_contest_add(&search->contest, &attempt->trial, attempt->us,
                                    &compiled->kernel, attempt->loaded, false);
  compiled->kernel = (struct ft_kernel){0};
  FT_TRY(status);
  if (!search->in.measuring->has_finals) ft_contest_flush(&search->contest);
  return FT_OK;
}

static int try_compiled(struct ft_search *search, int index, struct ft_compiled *compiled,
                        struct ft_trial *trial) {
  struct ft_attempt attempt = {.loaded = NULL};
  struct ft_incumbent incumbent = {0};
  if (compiled->status != FT_OK && !is_fault_of_candidate(compiled->status))
    return ft_fail(compiled->status, "%s", compiled->detail);
  const double begin = ft_seconds_now();
  if (search->in.measuring->has_finals) FT_TRY(ft_contest_incumbent(&search->contest, &incumbent));
  const struct failure lost =
      keep_failure(attempt_one(search, index, compiled, &incumbent, &attempt));
  /* A prediction measures nothing. */
  if (search->in.measuring->has_finals)
    search->summary->measure_seconds += ft_seconds_now() - begin;
  *trial = attempt.trial;
  /* The row of a candidate that took the GPU with it is written before the search ends, so that the
   * next search knows which one it was. */
  const int settled = settle(search, &attempt, compiled);
  const int status = first_of(&lost, settled);
  watch(search, NULL);
  return status;
}

static int prepare(struct ft_search *search) {
  const struct ft_rig *const rig = search->in.rig;
  if (search->prepared || !search->in.measuring->has_finals || !rig->prepare) return FT_OK;
  search->prepared = true;
  return rig->prepare(rig->payload);
}

static int try_one(struct ft_search *search, int place, struct ft_trial *trial) {
  struct ft_compile_pool *const pool = search->pool;
  const int next = ft_compile_pool_candidate(pool, place);
  if (search->is_known[next]) return take_known(search, next, trial);
  struct ft_compiled compiled;
  FT_TRY(prepare(search));
  const int index = ft_compile_pool_take(pool, place, &compiled);
  search->summary->compile_seconds += compiled.seconds;
  const int status = try_compiled(search, index, &compiled, trial);
  ft_kernel_free(&compiled.kernel);
  return status;
}

/* ---- which is next ---- */

/* Whether the config differs from another in one knob. */
static bool is_neighbour(void *payload, const struct ft_config *config) {
  const struct ft_config *const other = payload;
  int different = 0;
  if (config->family != other->family) return false;
  for (int n = 0; n < FT_KNOBS_MOST && different < 2; n++)
    different += config->knobs[n] != other->knobs[n];
  return different == 1;
}

/* The model knows which tiles are good better than which switches are. So every second candidate is
 * a neighbour of one of the best so far, as long as they have any, in the model's order; those
 * between are the model's own. */
static void descend(struct ft_search *search) {
  const struct ft_entrant *best[BEST_FEW];
  if (search->in.options->effort != FT_EFFORT_NORMAL || search->in.measuring->patience == 0) return;
  if (search->summary->tried % 2 == 0) return;
  if (search->summary->tried < search->known_count) return; /* or it would come before them */
  const int count = ft_contest_best(&search->contest, BEST_FEW, best);
  for (int n = 0; n < count; n++) {
    struct ft_config config = best[n]->trial.config;
    if (ft_compile_pool_prefer(search->pool, is_neighbour, &config)) return;
  }
}

/* What is compiled when the search ends was compiled for nothing, and is waited for. So no more is
 * compiled ahead than will be tried even if nothing better comes. */
static void limit_compiles(const struct ft_search *search) {
  const int patience = search->in.measuring->patience, tried = search->summary->tried;
  if (search->in.options->effort != FT_EFFORT_NORMAL || patience == 0 ||
      search->contest.best_us == 0 || tried < search->known_count)
    return;
  ft_compile_pool_limit(search->pool, tried + patience - search->since);
}

/* Once for a search. */
static void tell_cores_are_free(struct ft_search *search) {
  const struct ft_tune_options *const options = search->in.options;
  if (!search->told && options->cores_are_free) options->cores_are_free(options->payload);
  search->told = true;
}

static int try_all(struct ft_search *search) {
  for (int index = 0; index < search->in.candidates->count; index++) {
    if (stopped(search)) return ft_fail(FT_E_INTERRUPTED, "stopped after %d candidates", index);
    if (out_of_time(search)) return FT_OK;
    struct ft_trial trial = {0};
    FT_TRY(try_one(search, index, &trial));
    count_outcome(search->summary, &trial);
    keep_first_unfit(search, &trial);
    report(search, &trial);
    descend(search);
    if (!patient(search)) return FT_OK;
    limit_compiles(search);
    if (ft_compile_pool_is_claimed(search->pool)) tell_cores_are_free(search);
  }
  return FT_OK;
}

/* ---- the decision ---- */

static int hold_finals(struct ft_search *search) {
  if (!search->in.measuring->has_finals) return FT_OK;
  const double begin = ft_seconds_now();
  const int status = ft_contest_finals(&search->contest, search->in.options->stop);
  search->summary->measure_seconds += ft_seconds_now() - begin;
  if (status == FT_OK && stopped(search))
    return ft_fail(FT_E_INTERRUPTED, "stopped during the finals");
  return status;
}

static int decide(struct ft_search *search) {
  struct ft_tune_summary *summary = search->summary;
  const struct ft_rig *rig = search->in.rig;
  const struct ft_entrant *winner = ft_contest_winner(&search->contest);
  if (!winner)
    return ft_fail(
        FT_E_NOT_FOUND,
        "none of %d candidates is fit: %d wrong, %d spilled, %d failed otherwise; the first "
        "%s",
        summary->tried, summary->wrong, summary->spilled, summary->failed, search->unfit);
  /* A kernel that is not kept is compiled again when it is needed. */
  if (winner->kernel.image) rig->keep(rig->payload, &winner->kernel);
  summary->best = winner->trial.config;
  summary->best_us = winner->trial.median_us;
  for (int n = 0; n < search->contest.count; n++) {
    const struct ft_trial *trial = &search->contest.entrants[n].trial;
    if (trial->is_default) summary->default_us = trial->median_us;
  }
  return FT_OK;
}

/* Writes the rows and names the winner, however the loop over the candidates ended. Of several
 * failures the first is returned; that rows could not be stored is told last. */
static int finish(struct ft_search *search, int status) {
  if (status == FT_OK) status = hold_finals(search);
  const struct failure failure = keep_failure(status);
  const struct ft_contest *const contest = &search->contest;
  ft_contest_flush(&search->contest);
  search->summary->unstored = contest->unstored;
  search->summary->rounds_again = contest->rounds_again;
  search->summary->unsteady = contest->unsteady;
  FT_TRY(first_of(&failure, decide(search)));
  if (contest->unstored == 0) return FT_OK;
  return ft_fail(FT_E_CACHE, "%d of %d results could not be stored: %s", contest->unstored,
                 search->summary->tried, contest->unstored_why);
}

/* ---- open, run, close ---- */

/* The candidates that nobody has tried yet begin to be compiled. */
static int begin(struct ft_search *search) {
  const struct ft_search_inputs *const in = &search->in;
  const size_t count = (size_t)in->candidates->count;
  search->contest.rig = in->rig;
  search->known = calloc(count, sizeof *search->known);
  search->is_known = calloc(count, sizeof *search->is_known);
  if (!search->known || !search->is_known)
    return ft_fail(FT_E_MEMORY, "no memory for %zu candidates", count);
  recall_known(search);
  return ft_compile_pool_open(&search->pool, in->rig, in->candidates, search->is_known,
                              in->options->jobs, in->measuring->has_finals);
}

int ft_search_open(struct ft_search **out, const struct ft_search_inputs *in) {
  struct ft_search *const search = calloc(1, sizeof *search);
  *out = NULL;
  if (!search) return ft_fail(FT_E_MEMORY, "no memory for a search");
  search->in = *in;
  const int status = begin(search);
  if (status == FT_OK)
    *out = search;
  else
    ft_search_close(search);
  return status;
}

int ft_search_run(struct ft_search *search, struct ft_tune_summary *summary) {
  search->summary = summary;
  search->begin = ft_seconds_now();
  summary->product = search->in.candidates->product;
  summary->legal = search->in.candidates->legal;
  const struct failure failure = keep_failure(try_all(search));
  ft_compile_pool_close(search->pool);
  search->pool = NULL;
  if (failure.status == FT_OK) tell_cores_are_free(search);
  const int status = finish(search, first_of(&failure, FT_OK));
  summary->seconds = ft_seconds_now() - search->begin;
  return status;
}

void ft_search_close(struct ft_search *search) {
  if (!search) return;
  ft_compile_pool_close(search->pool);
  ft_contest_close(&search->contest);
  free(search->known);
  free(search->is_known);
  free(search);
}

int ft_search(const struct ft_search_inputs *in, struct ft_tune_summary *summary) {
  struct ft_search *search;
  int status = ft_search_open(&search, in);
  if (!search) return status;
  status = ft_search_run(search, summary);
  ft_search_close(search);
  return status;
}
