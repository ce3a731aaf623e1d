/* search.c: candidates one by one: recall or compile, run, record; then the finals.
 * in -> out: rig + candidates -> one row each, summary, winner.
 * A failing candidate is a row and the search goes on; it ends early only for a lost GPU, a user's
 * stop, a spent budget, or because nothing better has come for long. */
#include "tuner/search/search.h"

#include <stdio.h>
#include <stdlib.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "tuner/search/finalists.h"

enum { PATIENCE = 60 };                  /* candidates without an improvement, effort normal */
static const double IMPROVEMENT = 0.995; /* less than 0.5 % is noise */

/* An image that was seen, and whose it was. */
struct image {
  struct ft_digest digest;
  int smem_bytes, threads, candidate;
};

struct search {
  struct ft_trial_run run;
  const struct ft_candidates *candidates;
  const struct ft_tune_options *options;
  struct ft_tune_summary *summary;
  struct ft_field field;
  struct ft_trial *known; /* [candidate]: rows from the store */
  bool *is_known;
  struct image *images;
  int image_count;
  double begin;
  double patience_us; /* best when patience was last renewed */
  int since;          /* candidates since then */
};

static void count_outcome(struct ft_tune_summary *summary, const struct ft_trial *trial) {
  summary->tried += 1;
  switch (trial->outcome) {
  case FT_OUTCOME_OK:
  case FT_OUTCOME_SCREENED: summary->ok += 1; break;
  case FT_OUTCOME_WRONG: summary->wrong += 1; break;
  case FT_OUTCOME_SPILLED: summary->spilled += 1; break;
  default: summary->failed += 1; break;
  }
}

static void report(const struct search *search, const struct ft_trial *trial) {
  const struct ft_tune_options *options = search->options;
  if (!options->progress) return;
  const int done = search->summary->tried, total = search->candidates->count;
  const double elapsed = ft_seconds_now() - search->begin;
  const struct ft_tune_progress progress = {.done = done,
                                            .total = total,
                                            .elapsed_seconds = elapsed,
                                            .eta_seconds = elapsed / done * (total - done),
                                            .best_us = search->field.best_us,
                                            .trial = trial};
  options->progress(options->payload, &progress);
}

static void recall_known(struct search *search) {
  const struct ft_rig *rig = search->run.rig;
  if (search->options->again || !rig->recall) return;
  for (int n = 0; n < search->candidates->count; n++) {
    search->is_known[n] =
        rig->recall(rig->payload, &search->candidates->list[n].config, &search->known[n]);
  }
}

/* The earlier candidate with the same image and launch, or -1; a new image is remembered. */
static int same_image(struct search *search, const struct ft_compiled *compiled, int candidate) {
  const struct ft_kernel *kernel = &compiled->kernel;
  if (compiled->status != FT_OK) return -1;
  for (int n = 0; n < search->image_count; n++) {
    const struct image *image = &search->images[n];
    if (ft_digest_equal(&image->digest, &kernel->image_digest) &&
        image->smem_bytes == kernel->smem_bytes && image->threads == kernel->threads) {
      return image->candidate;
    }
  }
  search->images[search->image_count++] = (struct image){.digest = kernel->image_digest,
                                                         .smem_bytes = kernel->smem_bytes,
                                                         .threads = kernel->threads,
                                                         .candidate = candidate};
  return -1;
}

static void reject_as_same(const struct search *search, const struct ft_candidate *candidate,
                           const struct ft_compiled *compiled, int same, struct ft_trial *trial) {
  struct ft_text text = FT_TEXT_INIT;
  ft_text_add(&text, "same image as ");
  ft_config_print(&search->candidates->list[same].config, &text);
  ft_trial_begin(trial, search->run.stamp, candidate);
  ft_trial_set_kernel(trial, &compiled->kernel);
  ft_trial_end(trial, FT_OUTCOME_REJECTED, text.data ? text.data : "same image as another");
  ft_text_free(&text);
}

/* A compile that failed for no fault of the candidate: no NVRTC, a broken template, no memory. */
static int compiler_failure(const struct ft_compiled *compiled) {
  if (compiled->status == FT_OK || ft_compile_is_candidates(compiled->status)) return FT_OK;
  return ft_fail(compiled->status, "%s", compiled->detail);
}

/* Runs one candidate and sees to its row. `compiled` is used up. */
static int run_one(struct search *search, int index, struct ft_compiled *compiled,
                   struct ft_trial *trial) {
  const struct ft_candidate *candidate = &search->candidates->list[index];
  const struct ft_rig *rig = search->run.rig;
  void *loaded = NULL;
  double screen_us = 0;
  int status = compiler_failure(compiled);
  if (status != FT_OK) return status;

  const int same = same_image(search, compiled, index);
  if (same >= 0) {
    reject_as_same(search, candidate, compiled, same, trial);
  } else {
    const double begin = ft_seconds_now();
    struct ft_pace pace;
    FT_TRY(ft_field_pace(&search->field, &pace));
    status = ft_trial_run(&search->run, candidate, compiled, &pace, trial, &screen_us, &loaded);
    search->summary->measure_seconds += ft_seconds_now() - begin;
  }
  if (ft_outcome_ran(trial->outcome) && status == FT_OK) {
    status = ft_field_add(&search->field, trial, screen_us, &compiled->kernel, loaded, false);
    compiled->kernel = (struct ft_kernel){0};
    return status;
  }
  /* Before a lost GPU ends the search: the next one must know which candidate it was. */
  char detail[1024];
  snprintf(detail, sizeof detail, "%.*s", (int)sizeof detail - 1, ft_detail());
  const int recorded = rig->record(rig->payload, trial);
  ft_kernel_free(&compiled->kernel);
  return status != FT_OK ? ft_fail(status, "%s", detail) : recorded;
}

static int take_known(struct search *search, int index, struct ft_trial *trial) {
  struct ft_kernel none = {0};
  *trial = search->known[index];
  search->summary->recalled += 1;
  if (!ft_outcome_ran(trial->outcome)) return FT_OK;
  return ft_field_add(&search->field, trial, trial->median_us, &none, NULL, true);
}

/* Whether to go on after a candidate. */
static bool patient(struct search *search) {
  const double best_us = search->field.best_us;
  if (best_us == 0) return true; /* as long as nothing runs, any that does is an improvement */
  search->since += 1;
  if (search->patience_us == 0 || best_us < IMPROVEMENT * search->patience_us) {
    search->patience_us = best_us;
    search->since = 0;
  }
  return search->options->effort != FT_EFFORT_NORMAL || search->since < PATIENCE;
}

static bool out_of_time(const struct search *search) {
  const double budget = search->options->budget_seconds;
  return budget > 0 && search->summary->tried > 0 && ft_seconds_now() - search->begin > budget;
}

static int try_all(struct search *search, struct ft_compile_pool *pool) {
  const volatile sig_atomic_t *stop = search->options->stop;
  for (int index = 0; index < search->candidates->count; index++) {
    if (stop && *stop) return ft_fail(FT_E_INTERRUPTED, "stopped after %d candidates", index);
    if (out_of_time(search)) return FT_OK;
    struct ft_trial trial = {0};
    if (search->is_known[index]) {
      FT_TRY(take_known(search, index, &trial));
    } else {
      struct ft_compiled compiled;
      ft_compile_pool_take(pool, index, &compiled);
      search->summary->compile_seconds += compiled.seconds;
      const int status = run_one(search, index, &compiled, &trial);
      ft_kernel_free(&compiled.kernel);
      FT_TRY(status);
    }
    count_outcome(search->summary, &trial);
    report(search, &trial);
    if (!patient(search)) return FT_OK;
  }
  return FT_OK;
}

static int nothing_ran(const struct search *search) {
  const struct ft_tune_summary *summary = search->summary;
  return ft_fail(FT_E_NOT_FOUND,
                 "none of %d candidates ran right: %d wrong, %d spilled, %d failed otherwise",
                 summary->tried, summary->wrong, summary->spilled, summary->failed);
}

static int decide(struct search *search) {
  struct ft_tune_summary *summary = search->summary;
  const struct ft_entrant *winner = ft_field_winner(&search->field);
  if (!winner) return nothing_ran(search);
  if (winner->kernel.image) search->run.rig->keep(search->run.rig->payload, &winner->kernel);
  summary->best = winner->trial.config;
  summary->best_us = winner->trial.median_us;
  for (int n = 0; n < search->field.count; n++) {
    const struct ft_trial *trial = &search->field.entrants[n].trial;
    if (trial->is_default) summary->default_us = trial->median_us;
  }
  return FT_OK;
}

/* Rows are written and the winner named however the candidates' loop ended; its status comes first.
 */
static int finish(struct search *search, int status) {
  char detail[1024];
  snprintf(detail, sizeof detail, "%.*s", (int)sizeof detail - 1, ft_detail());
  const double begin = ft_seconds_now();
  int finals = status == FT_OK ? ft_field_finals(&search->field, search->options->stop) : FT_OK;
  search->summary->measure_seconds += ft_seconds_now() - begin;
  const volatile sig_atomic_t *stop = search->options->stop;
  if (status == FT_OK && finals == FT_OK && stop && *stop) {
    finals = ft_fail(FT_E_INTERRUPTED, "stopped during the finals");
  }
  if (status == FT_OK && finals != FT_OK) {
    snprintf(detail, sizeof detail, "%.*s", (int)sizeof detail - 1, ft_detail());
    status = finals;
  }
  const int flushed = ft_field_flush(&search->field);
  if (status == FT_OK && flushed != FT_OK) return flushed;
  const int decided = decide(search);
  if (status == FT_OK) return decided;
  return ft_fail(status, "%s", detail);
}

int ft_search(const struct ft_rig *rig, const struct ft_candidates *candidates,
              const struct ft_trial *stamp, const struct ft_tune_options *options,
              struct ft_tune_summary *summary) {
  const size_t count = (size_t)candidates->count;
  struct search search = {.run = {.rig = rig, .stamp = stamp},
                          .candidates = candidates,
                          .options = options,
                          .summary = summary,
                          .field = {.rig = rig},
                          .known = calloc(count, sizeof *search.known),
                          .is_known = calloc(count, sizeof *search.is_known),
                          .images = calloc(count, sizeof *search.images),
                          .begin = ft_seconds_now()};
  struct ft_compile_pool *pool = NULL;
  int status = FT_OK;
  summary->product = candidates->product;
  summary->legal = candidates->legal;
  if (!search.known || !search.is_known || !search.images) {
    status = ft_fail(FT_E_MEMORY, "no memory for %zu candidates", count);
    goto done;
  }
  recall_known(&search);
  FT_CHECK(ft_compile_pool_open(&pool, rig, candidates, search.is_known, options->jobs));
  status = try_all(&search, pool);
  ft_compile_pool_close(pool);
  pool = NULL;
  status = finish(&search, status);
done:
  ft_compile_pool_close(pool);
  ft_field_close(&search.field);
  free(search.known);
  free(search.is_known);
  free(search.images);
  summary->seconds = ft_seconds_now() - search.begin;
  return status;
}
