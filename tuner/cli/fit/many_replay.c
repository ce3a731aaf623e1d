/* many_replay.c: a search over times that were recorded. in -> out: see many_replay.h. */
#include "tuner/cli/fit/many_replay.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/model/choice.h"
#include "generator/status.h"
#include "tuner/search/on_machine.h"
#include "tuner/search/search.h"

struct recorded {
  struct ft_trial *trials; /* by config */
  int count;
  atomic_int missing;
};

static int by_config(const void *a, const void *b) {
  const struct ft_trial *x = a, *y = b;
  return ft_config_compare(&x->config, &y->config);
}

static const struct ft_trial *find(const struct recorded *recorded,
                                   const struct ft_config *config) {
  const struct ft_trial wanted = {.config = *config};
  if (recorded->count == 0) return NULL;
  return bsearch(&wanted, recorded->trials, (size_t)recorded->count, sizeof wanted, by_config);
}

/* ---- the trials of a request ---- */

static int append(struct recorded *recorded, int *room, const struct ft_trial *trial) {
  if (recorded->count == *room) {
    *room = *room > 0 ? 2 * *room : 256;
    struct ft_trial *const grown = realloc(recorded->trials, (size_t)*room * sizeof *grown);
    if (!grown) return ft_fail(FT_E_MEMORY, "no memory for %d trials", *room);
    recorded->trials = grown;
  }
  recorded->trials[recorded->count++] = *trial;
  return FT_OK;
}

/* The last of those of a config, which sorting has put side by side in any order. */
static void keep_last(struct recorded *recorded) {
  int kept = 0;
  if (recorded->count > 0)
    qsort(recorded->trials, (size_t)recorded->count, sizeof *recorded->trials, by_config);
  for (int n = 0; n < recorded->count; n++) {
    struct ft_trial *const last = kept > 0 ? &recorded->trials[kept - 1] : NULL;
    if (!last || by_config(last, &recorded->trials[n]) != 0)
      recorded->trials[kept++] = recorded->trials[n];
    else if (recorded->trials[n].at >= last->at && recorded->trials[n].outcome <= last->outcome)
      *last = recorded->trials[n];
  }
  recorded->count = kept;
}

static int read_trials(struct recorded *recorded, const char *path,
                       const struct ft_request *request) {
  char *line = NULL;
  size_t length = 0;
  int room = 0, status = FT_OK;
  struct ft_text wanted = FT_TEXT_INIT;
  FILE *const file = fopen(path, "re");
  if (!file) return ft_fail(FT_E_IO, "%s cannot be read", path);
  ft_request_print(request, &wanted);
  while (status == FT_OK && getline(&line, &length, file) >= 0) {
    struct ft_trial trial;
    struct ft_text own = FT_TEXT_INIT;
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#' || ft_trial_parse(&trial, line) != FT_OK) continue;
    ft_request_print(&trial.request, &own);
    if (own.data && wanted.data && strcmp(own.data, wanted.data) == 0)
      status = append(recorded, &room, &trial);
    ft_text_free(&own);
  }
  fclose(file);
  free(line);
  ft_text_free(&wanted);
  keep_last(recorded);
  return status;
}

/* ---- the machine ---- */

static int compile(void *payload, const struct ft_config *config, struct ft_kernel *kernel) {
  struct recorded *const recorded = payload;
  const struct ft_trial *const trial = find(recorded, config);
  *kernel = (struct ft_kernel){0};
  recorded->missing += trial == NULL;
  if (!trial || !ft_outcome_ran(trial->outcome))
    return ft_fail(FT_E_COMPILE, trial ? "it has no time" : "not recorded");
  const int number = (int)(trial - recorded->trials);
  kernel->image_digest = ft_digest_of(&number, sizeof number);
  kernel->key = kernel->image_digest;
  kernel->registers = trial->registers;
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

static void time_of(const struct ft_trial *trial, struct ft_timing *timing) {
  *timing = (struct ft_timing){.sample_count = 5, .sm_clock_mhz = trial->sm_clock_mhz};
  for (int n = 0; n < timing->sample_count; n++) timing->samples_us[n] = trial->median_us;
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
