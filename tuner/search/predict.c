/* predict.c: tuning for a GPU that is not here.
 * in -> out: session + request + arch -> kernels compiled for real, ranked by the model from their
 * registers, spills and shared memory -> rows with outcome `predicted`, which any measurement
 * outranks. */
#include <stdio.h>
#include <stdlib.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "tuner/search/finalists.h"
#include "tuner/search/gpu_rig.h"
#include "tuner/model/model.h"
#include "tuner/search/search.h"

static const double NORMAL_SHARE = 1.5; /* candidates predicted slower than this are left out */

struct prediction {
  const struct ft_rig *rig;
  const struct ft_trial *stamp;
  const struct ft_request *request;
  const struct ft_arch *arch;
  const struct ft_tune_options *options;
  struct ft_tune_summary *summary;
  struct ft_field field;
  struct ft_trial *known; /* [candidate]: rows from the store */
  bool *is_known;
};

static void fill_trial(const struct prediction *prediction, const struct ft_candidate *candidate,
                       const struct ft_compiled *compiled, struct ft_trial *trial) {
  ft_trial_begin(trial, prediction->stamp, candidate);
  if (compiled->status != FT_OK) {
    ft_trial_end(trial, FT_OUTCOME_COMPILE, compiled->detail);
    return;
  }
  const struct ft_kernel *kernel = &compiled->kernel;
  ft_trial_set_kernel(trial, kernel);
  if (ft_trial_ruled_out(trial, candidate, kernel)) return;
  trial->median_us = ft_model(prediction->request, prediction->arch, &candidate->config,
                              kernel->registers, kernel->spill_bytes)
                         .us;
  ft_trial_end(trial, FT_OUTCOME_PREDICTED, "");
}

static void count_outcome(struct ft_tune_summary *summary, const struct ft_trial *trial) {
  summary->tried += 1;
  if (trial->outcome == FT_OUTCOME_PREDICTED)
    summary->ok += 1;
  else if (trial->outcome == FT_OUTCOME_SPILLED)
    summary->spilled += 1;
  else
    summary->failed += 1;
}

static int take_known(struct prediction *prediction, int index, struct ft_trial *trial) {
  struct ft_kernel none = {0};
  *trial = prediction->known[index];
  prediction->summary->recalled += 1;
  count_outcome(prediction->summary, trial);
  if (trial->outcome != FT_OUTCOME_PREDICTED) return FT_OK;
  return ft_field_add(&prediction->field, trial, trial->median_us, &none, NULL, true);
}

static int predict_one(struct prediction *prediction, const struct ft_candidate *candidate,
                       struct ft_compiled *compiled, struct ft_trial *trial) {
  if (compiled->status != FT_OK && !ft_compile_is_candidates(compiled->status)) {
    return ft_fail(compiled->status, "%s", compiled->detail);
  }
  fill_trial(prediction, candidate, compiled, trial);
  count_outcome(prediction->summary, trial);
  if (trial->outcome == FT_OUTCOME_PREDICTED) {
    FT_TRY(
        ft_field_add(&prediction->field, trial, trial->median_us, &compiled->kernel, NULL, false));
    compiled->kernel = (struct ft_kernel){0};
    return ft_field_flush(&prediction->field);
  }
  return prediction->rig->record(prediction->rig->payload, trial);
}

static void report(const struct prediction *prediction, int total, double begin,
                   const struct ft_trial *trial) {
  const struct ft_tune_options *options = prediction->options;
  if (!options->progress) return;
  const int done = prediction->summary->tried;
  const double elapsed = ft_seconds_now() - begin;
  const struct ft_tune_progress progress = {.done = done,
                                            .total = total,
                                            .elapsed_seconds = elapsed,
                                            .eta_seconds = elapsed / done * (total - done),
                                            .best_us = prediction->field.best_us,
                                            .trial = trial};
  options->progress(options->payload, &progress);
}

static int predict_all(struct prediction *prediction, const struct ft_candidates *candidates,
                       struct ft_compile_pool *pool) {
  const struct ft_tune_options *options = prediction->options;
  const double begin = ft_seconds_now();
  for (int index = 0; index < candidates->count; index++) {
    if (options->stop && *options->stop)
      return ft_fail(FT_E_INTERRUPTED, "stopped after %d candidates", index);
    if (options->budget_seconds > 0 && index > 0 &&
        ft_seconds_now() - begin > options->budget_seconds)
      break;
    struct ft_trial trial = {0};
    if (prediction->is_known[index]) {
      FT_TRY(take_known(prediction, index, &trial));
    } else {
      struct ft_compiled compiled;
      ft_compile_pool_take(pool, index, &compiled);
      prediction->summary->compile_seconds += compiled.seconds;
      const int status = predict_one(prediction, &candidates->list[index], &compiled, &trial);
      ft_kernel_free(&compiled.kernel);
      FT_TRY(status);
    }
    report(prediction, candidates->count, begin, &trial);
  }
  return FT_OK;
}

static int decide(struct prediction *prediction) {
  struct ft_tune_summary *summary = prediction->summary;
  const struct ft_entrant *winner = ft_field_winner(&prediction->field);
  if (!winner) {
    return ft_fail(FT_E_NOT_FOUND, "none of %d candidates compiles with few enough spills",
                   summary->tried);
  }
  /* Not kept, it is compiled again when needed. A recalled winner's was kept when it won first. */
  if (winner->kernel.image) prediction->rig->keep(prediction->rig->payload, &winner->kernel);
  summary->best = winner->trial.config;
  summary->best_us = winner->trial.median_us;
  for (int n = 0; n < prediction->field.count; n++) {
    const struct ft_trial *trial = &prediction->field.entrants[n].trial;
    if (trial->is_default) summary->default_us = trial->median_us;
  }
  return FT_OK;
}

/* The order is the model's already, only with estimated registers: what it puts far behind stays
 * behind. */
static void cut_hopeless(struct ft_candidates *candidates, enum ft_effort effort) {
  if (effort != FT_EFFORT_NORMAL || candidates->count < 2) return;
  const double limit = NORMAL_SHARE * candidates->list[1].predicted_us;
  while (candidates->count > 2 && candidates->list[candidates->count - 1].predicted_us > limit) {
    candidates->count -= 1;
  }
}

/* Names the winner among what was done even when it was stopped; the stop is the status then. */
static int run(struct prediction *prediction, const struct ft_candidates *candidates) {
  const size_t count = (size_t)candidates->count;
  const struct ft_rig *rig = prediction->rig;
  struct ft_compile_pool *pool;
  prediction->known = calloc(count, sizeof *prediction->known);
  prediction->is_known = calloc(count, sizeof *prediction->is_known);
  if (!prediction->known || !prediction->is_known) {
    return ft_fail(FT_E_MEMORY, "no memory for %zu candidates", count);
  }
  for (int n = 0; n < candidates->count && !prediction->options->again; n++) {
    prediction->is_known[n] =
        rig->recall(rig->payload, &candidates->list[n].config, &prediction->known[n]);
  }
  FT_TRY(ft_compile_pool_open(&pool, rig, candidates, prediction->is_known,
                              prediction->options->jobs));
  const int status = predict_all(prediction, candidates, pool);
  char detail[1024];
  snprintf(detail, sizeof detail, "%.*s", (int)sizeof detail - 1, ft_detail());
  ft_compile_pool_close(pool);
  const int decided = decide(prediction);
  return status != FT_OK ? ft_fail(status, "%s", detail) : decided;
}

int ft_tune_predict(fatune_session *session, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_tune_options *options,
                    struct ft_tune_summary *summary) {
  *summary = (struct ft_tune_summary){.measured = false};
  const double begin = ft_seconds_now();
  struct ft_candidates candidates;
  struct ft_gpu_rig *rig = NULL;
  struct prediction prediction = {
      .request = request, .arch = arch, .options = options, .summary = summary};
  int status;
  FT_TRY(ft_request_validate(request));
  FT_TRY(ft_candidates_make(&candidates, request, arch, options));
  summary->product = candidates.product;
  summary->legal = candidates.legal;
  cut_hopeless(&candidates, options->effort);
  FT_CHECK(ft_gpu_rig_open(&rig, session, request, arch, options, false));
  prediction.rig = ft_gpu_rig_functions(rig);
  prediction.stamp = ft_gpu_rig_stamp(rig);
  prediction.field.rig = prediction.rig;
  FT_CHECK(run(&prediction, &candidates));
done:
  ft_field_close(&prediction.field);
  ft_gpu_rig_close(rig);
  ft_candidates_free(&candidates);
  free(prediction.known);
  free(prediction.is_known);
  summary->seconds = ft_seconds_now() - begin;
  return status;
}
