/* many_replay.c: a search over times that were recorded. in -> out: see many_replay.h. */
#include "tuner/cli/fit/many_replay.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "generator/model/choice.h"
#include "generator/status.h"
#include "tuner/cli/fit/trials_file.h"
#include "tuner/search/on_machine.h"
#include "tuner/search/search.h"

/* A config's trial. */
struct timed {
  struct ft_config config;
  struct ft_trials_row row;
};

struct recorded {
  struct timed *trials; /* by config */
  int count;
  atomic_int missing;
};

static int by_config(const void *a, const void *b) {
  const struct timed *x = a, *y = b;
  return ft_config_compare(&x->config, &y->config);
}

static const struct timed *find(const struct recorded *recorded, const struct ft_config *config) {
  const struct timed wanted = {.config = *config};
  if (recorded->count == 0) return NULL;
  return bsearch(&wanted, recorded->trials, (size_t)recorded->count, sizeof wanted, by_config);
}

/* ---- the trials of a request ---- */

/* The last trial of each config of a request; what ran is not forgotten for what did not. */
static int pick_last(struct recorded *recorded, const struct ft_trials *trials,
                     const char *request) {
  const size_t most = (size_t)trials->config_count + 1;
  int *const last = calloc(most, sizeof *last); /* row of each config, from 1 on */
  recorded->trials = calloc(most, sizeof *recorded->trials);
  if (!last || !recorded->trials) {
    free(last);
    return ft_fail(FT_E_MEMORY, "no memory for %d configs", trials->config_count);
  }
  for (int n = 0; n < trials->row_count; n++) {
    const struct ft_trials_row *const row = &trials->rows[n];
    int *const before = &last[row->config];
    if (strcmp(trials->requests[row->request].text, request) != 0) continue;
    if (*before == 0 || row->outcome <= trials->rows[*before - 1].outcome) *before = n + 1;
  }
  for (int n = 0; n < trials->config_count; n++)
    if (last[n] > 0 && trials->configs[n].known)
      recorded->trials[recorded->count++] =
          (struct timed){trials->configs[n].config, trials->rows[last[n] - 1]};
  free(last);
  if (recorded->count > 0)
    qsort(recorded->trials, (size_t)recorded->count, sizeof *recorded->trials, by_config);
  return FT_OK;
}

static int read_trials(struct recorded *recorded, const char *path,
                       const struct ft_request *request) {
  struct ft_trials trials;
  struct ft_text wanted = FT_TEXT_INIT;
  FT_TRY(ft_trials_read(&trials, path));
  ft_request_print(request, &wanted);
  int status = ft_text_status(&wanted);
  if (status == FT_OK) status = pick_last(recorded, &trials, wanted.data);
  ft_text_free(&wanted);
  ft_trials_free(&trials);
  return status;
}

/* ---- the machine ---- */

static int compile(void *payload, const struct ft_config *config, struct ft_kernel *kernel) {
  struct recorded *const recorded = payload;
  const struct timed *const trial = find(recorded, config);
  *kernel = (struct ft_kernel){0};
  recorded->missing += trial == NULL;
  if (!trial || !ft_outcome_ran(trial->row.outcome))
    return ft_fail(FT_E_COMPILE, trial ? "it has no time" : "not recorded");
  const int number = (int)(trial - recorded->trials);
  kernel->image_digest = ft_digest_of(&number, sizeof number);
  kernel->key = kernel->image_digest;
  kernel->registers = trial->row.registers;
  return FT_OK;
}

static int load(void *payload, const struct ft_config *config, const struct ft_kernel *kernel,
                void **loaded) {
  (void)kernel;
  *loaded = (void *)find(payload, config);
  return FT_OK;
}

static void unload(void *payload, void *loaded) {
  (void)payload, (void)loaded;
}

static int verify(void *payload, void *loaded, struct ft_comparison *comparison) {
  (void)payload, (void)loaded;
  *comparison = (struct ft_comparison){.error_ratio = 0.5};
  return FT_OK;
}

static void time_of(const struct timed *trial, struct ft_timing *timing) {
  *timing = (struct ft_timing){.sample_count = 5, .sm_clock_mhz = trial->row.sm_clock_mhz};
  for (int n = 0; n < timing->sample_count; n++) timing->samples_us[n] = trial->row.median_us;
  ft_timing_summarise(timing);
}

static int measure(void *payload, void *loaded, void *incumbent, double give_up_us,
                   struct ft_timing *timing, struct ft_timing *beside) {
  (void)payload, (void)give_up_us;
  time_of(loaded, timing);
  *beside = (struct ft_timing){0};
  if (incumbent) time_of(incumbent, beside);
  return FT_OK;
}

static int measure_in_turn(void *payload, void *const *loaded, int count,
                           struct ft_timing *timings) {
  (void)payload;
  for (int n = 0; n < count; n++) time_of(loaded[n], &timings[n]);
  return FT_OK;
}

static enum ft_health health(void *payload) {
  (void)payload;
  return FT_HEALTH_GOOD;
}

static int record(void *payload, const struct ft_trial *trial) {
  (void)payload, (void)trial;
  return FT_OK;
}

static bool recall(void *payload, const struct ft_config *config, struct ft_trial *trial) {
  (void)payload, (void)config, (void)trial;
  return false;
}

static int keep(void *payload, const struct ft_kernel *kernel) {
  (void)payload, (void)kernel;
  return FT_OK;
}

/* ---- the search ---- */

static int search(struct recorded *recorded, const struct ft_request *request,
                  const struct ft_candidates *candidates, const struct ft_tune_options *options,
                  struct ft_tune_summary *summary) {
  const struct ft_rig rig = {.payload = recorded,
                             .compile = compile,
                             .load = load,
                             .unload = unload,
                             .verify = verify,
                             .measure = measure,
                             .measure_in_turn = measure_in_turn,
                             .health = health,
                             .record = record,
                             .recall = recall,
                             .keep = keep};
  const struct ft_trial stamp = {.bucket = ft_request_bucket(request), .request = *request};
  struct ft_measuring measuring;
  FT_TRY(ft_measuring_on_machine(&measuring, &rig, candidates));
  const struct ft_search_inputs in = {.rig = &rig,
                                      .measuring = &measuring,
                                      .candidates = candidates,
                                      .stamp = &stamp,
                                      .options = options};
  const int status = ft_search(&in, summary);
  ft_measuring_off_machine(&measuring);
  return status;
}

int ft_many_replay(const char *path, const struct ft_request *request, const struct ft_arch *arch,
                   int jobs, struct ft_tune_summary *summary, int *missing) {
  const struct ft_tune_options options = {.effort = FT_EFFORT_NORMAL, .jobs = jobs};
  struct recorded recorded = {0};
  struct ft_candidates candidates = {0};
  struct ft_config chosen;
  double gain;
  int status;
  *summary = (struct ft_tune_summary){0};
  FT_CHECK(read_trials(&recorded, path, request));
  FT_CHECK(ft_candidates_make(&candidates, request, arch, NULL, &options));
  FT_CHECK(ft_model_choose(request, arch, NULL, &chosen, &gain));
  FT_CHECK(ft_candidates_lead(&candidates, &chosen, 0));
  FT_CHECK(search(&recorded, request, &candidates, &options, summary));
  *missing = recorded.missing;
done:
  ft_candidates_free(&candidates);
  free(recorded.trials);
  return status;
}
