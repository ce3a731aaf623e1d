/* many_run.c: the configs of a list, timed on the GPU. in -> out: see many_run.h. */
#include "tuner/cli/fit/many_run.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "runtime/kernel_source.h"
#include "runtime/session.h"
#include "tuner/search/gpu_rig.h"
#include "tuner/search/loaded.h"
#include "tuner/search/trial_fill.h"
#include "tuner/verify/problem.h"

enum { FIRST = 2, FINALISTS_MOST = 32, SMALL_ROWS = 512 };

/* A screening takes 10 ms in all. A config that takes four times as long as the first is timed
 * once. */
static const struct ft_measure_policy screening = {
    .warmup_us = 400, .sample_us = 300, .samples = 5};
static const struct ft_measure_policy finals = {
    .warmup_us = 1500, .sample_us = 1500, .samples = 15};
static const double GIVE_UP = 4;

/* A config on the GPU, with its kernel, whose figures a trial has. */
struct loaded {
  struct ft_loaded *on_gpu;
  struct ft_kernel kernel;
};

/* A request under way. */
struct bench {
  fatune_session *session;
  struct ft_many_run *run;
  const struct ft_request *request;
  const struct ft_many_item *items;
  int count;
  struct ft_nvml *nvml;
  cu_stream stream;
  struct ft_problem *problem;
  struct ft_trial *trials; /* of each item; median_us 0: it has no time */
};

static int load(const struct bench *bench, const struct ft_config *config, struct loaded *it) {
  struct ft_source source;
  bool compiled;
  *it = (struct loaded){0};
  FT_TRY(ft_loaded_make(&it->on_gpu, bench->session, bench->stream, bench->request,
                        &bench->session->device.arch, config));
  const int status = ft_session_prepare(bench->session, bench->request, config, NULL, &source,
                                        &it->kernel, &it->on_gpu->module, &compiled);
  if (status == FT_OK) {
    ft_source_free(&source);
    return FT_OK;
  }
  free(it->on_gpu);
  *it = (struct loaded){0};
  return status;
}

/* Nothing if nothing was loaded. */
static void unload(struct loaded *it) {
  if (!it->on_gpu) return;
  ft_module_unload(&it->on_gpu->module, it->on_gpu->session);
  ft_kernel_free(&it->kernel);
  free(it->on_gpu);
}

static int in_turn(const struct bench *bench, struct ft_loaded *const *all, int count,
                   const struct ft_measure_policy *policy, struct ft_timing *timings) {
  return ft_loaded_measure(all, count, bench->problem, bench->request, bench->nvml, policy,
                           timings);
}

/* ---- one row a config ---- */

static void begin_trial(const struct bench *bench, int item, const struct loaded *it,
                        struct ft_trial *trial) {
  const fatune_session *const session = bench->session;
  const struct ft_candidate candidate = {.config = it->on_gpu->config, .is_default = item == 0};
  struct ft_trial stamp = {.bucket = ft_request_bucket(bench->request),
                           .request = *bench->request,
                           .templates = session->templates};
  snprintf(stamp.policy, sizeof stamp.policy, "%s",
           bench->request->ragged ? FT_POLICY_RAGGED : FT_POLICY);
  snprintf(stamp.device, sizeof stamp.device, "%s", session->device.id);
  snprintf(stamp.driver, sizeof stamp.driver, "%s", session->device.driver);
  snprintf(stamp.nvrtc, sizeof stamp.nvrtc, "%s", it->kernel.nvrtc);
  ft_trial_begin(trial, &stamp, &candidate);
  ft_trial_set_kernel(trial, &it->kernel);
  trial->at = time(NULL);
}

/* Times a config beside the first of the request: its time at the clock that the first had. */
static int screen(struct bench *bench, int item, const struct loaded *it,
                  const struct loaded *first) {
  struct ft_trial *const trial = &bench->trials[item];
  struct ft_loaded *const both[2] = {it->on_gpu, first->on_gpu};
  struct ft_timing timings[2] = {0};
  struct ft_measure_policy policy = screening;
  const double first_us = bench->trials[0].median_us;
  if (item > 0) policy.give_up_us = GIVE_UP * first_us;
  FT_TRY(in_turn(bench, both, item > 0 ? 2 : 1, &policy, timings));
  ft_trial_set_timing(trial, &timings[0]);
  ft_trial_end(trial, FT_OUTCOME_SCREENED, "");
  if (timings[1].sample_count > 0) trial->median_us *= first_us / timings[1].median_us;
  if (item > 0) trial->sm_clock_mhz = bench->trials[0].sm_clock_mhz;
  trial->sample_count = 0;
  bench->run->timed += 1;
  return FT_OK;
}

static int try_item(struct bench *bench, int item, const struct loaded *first) {
  struct ft_trial *const trial = &bench->trials[item];
  struct loaded own = {0};
  const struct loaded *const it = item > 0 ? &own : first;
  int status = FT_OK;
  if (item > 0 && load(bench, &bench->items[item].config, &own) != FT_OK) {
    bench->run->missing += 1;
    fprintf(stderr, "not there: %s\n", ft_detail());
    return FT_OK;
  }
  const struct ft_candidate candidate = {.config = it->on_gpu->config, .is_default = item == 0};
  begin_trial(bench, item, it, trial);
  if (ft_trial_ruled_out(trial, &candidate, &it->kernel))
    bench->run->ruled_out += 1;
  else
    status = screen(bench, item, it, first);
  if (status != FT_OK) {
    bench->run->failed += 1;
    fprintf(stderr, "item %d of request %d: %s\n", item, bench->items[item].request, ft_detail());
    if (ft_stream_health(bench->session, bench->stream) != FT_HEALTH_GOOD)
      return ft_fail(FT_E_DEVICE, "the GPU context is lost");
    ft_trial_end(trial, FT_OUTCOME_LAUNCH, "not launched");
    trial->median_us = 0;
  }
  status = ft_trials_append_put(bench->run->out, trial);
  unload(&own);
  return status;
}

/* ---- finals ---- */

/* Items of the finals: the first two, then the fastest others. */
static int pick(const struct bench *bench, int *picked) {
  int count = 0;
  const int most = bench->run->finalists < FINALISTS_MOST ? bench->run->finalists : FINALISTS_MOST;
  for (int n = 0; n < FIRST && n < bench->count; n++)
    if (bench->trials[n].median_us > 0) picked[count++] = n;
  for (int more = 0; more < most; more++) {
    int best = -1;
    for (int n = FIRST; n < bench->count; n++) {
      bool free = bench->trials[n].median_us > 0;
      for (int i = 0; i < count; i++) free = free && picked[i] != n;
      if (free && (best < 0 || bench->trials[n].median_us < bench->trials[best].median_us))
        best = n;
    }
    if (best < 0) break;
    picked[count++] = best;
  }
  return count;
}

/* On a small problem with every feature of the request. */
static int verify(struct bench *bench, const int *picked, const struct loaded *all, int count) {
  const struct ft_request small = ft_small_request(bench->request, &bench->session->device.arch);
  const struct ft_problem_options options = {.request = small,
                                             .layout = FT_LAYOUT_PADDED,
                                             .seed = 11,
                                             .keep_host = true,
                                             .want_lse = true,
                                             .want_dlse = true};
  struct ft_problem *problem;
  int status = ft_problem_make(&problem, bench->session, &options);
  if (status != FT_OK) return status;
  for (int n = 0; n < count && status == FT_OK; n++) {
    struct ft_comparison comparison = {0};
    status = ft_loaded_check(all[n].on_gpu, problem, &small, SMALL_ROWS,
                             (int)sysconf(_SC_NPROCESSORS_ONLN), false, &comparison);
    struct ft_trial *const trial = &bench->trials[picked[n]];
    trial->error_ratio = comparison.error_ratio;
    if (status != FT_OK || comparison.error_ratio <= 1) continue;
    ft_trial_end(trial, FT_OUTCOME_WRONG, comparison.worst);
    bench->run->wrong += 1;
  }
  ft_problem_free(problem);
  return status;
}

static int hold_finals(struct bench *bench) {
  int picked[FINALISTS_MOST + FIRST], status = FT_OK;
  struct loaded all[FINALISTS_MOST + FIRST] = {0};
  struct ft_loaded *on_gpu[FINALISTS_MOST + FIRST];
  struct ft_timing timings[FINALISTS_MOST + FIRST] = {0};
  const int count = pick(bench, picked);
  for (int n = 0; n < count && status == FT_OK; n++)
    status = load(bench, &bench->items[picked[n]].config, &all[n]);
  for (int n = 0; n < count; n++) on_gpu[n] = all[n].on_gpu;
  if (status == FT_OK) status = verify(bench, picked, all, count);
  if (status == FT_OK) status = in_turn(bench, on_gpu, count, &finals, timings);
  for (int n = 0; n < count; n++) {
    struct ft_trial *const trial = &bench->trials[picked[n]];
    unload(&all[n]);
    if (status != FT_OK) continue;
    ft_trial_set_timing(trial, &timings[n]);
    if (trial->outcome != FT_OUTCOME_WRONG) ft_trial_end(trial, FT_OUTCOME_OK, "");
    status = ft_trials_append_put(bench->run->out, trial);
  }
  return status;
}

/* ---- a request, and all ---- */

static int run_request(struct bench *bench) {
  const struct ft_problem_options options = {
      .request = *bench->request, .alike = true, .seed = 7, .want_lse = true, .made_up = true};
  struct loaded first;
  int status = load(bench, &bench->items[0].config, &first);
  if (status == FT_OK) status = ft_problem_make(&bench->problem, bench->session, &options);
  for (int n = 0; n < bench->count && status == FT_OK; n++) {
    status = try_item(bench, n, &first);
    if (n == 0 && status == FT_OK && bench->trials[0].median_us <= 0)
      status = ft_fail(FT_E_ARGUMENT, "its first config does not run");
  }
  if (status == FT_OK && bench->run->finalists > 0) status = hold_finals(bench);
  if (status == FT_E_DEVICE) return status; /* freeing would wait for the GPU */
  unload(&first);
  ft_problem_free(bench->problem);
  return status;
}

static int run_all(struct bench *bench, const struct ft_many_list *list) {
  const double begin = ft_seconds_now();
  struct ft_many_run *const run = bench->run;
  for (int at = 0, end; at < list->item_count; at = end) {
    const int request = list->items[at].request;
    for (end = at; end < list->item_count && list->items[end].request == request;) end++;
    if (request < run->from) continue;
    if (ft_seconds_now() - begin > run->seconds) return FT_OK;
    bench->request = &list->requests[request];
    bench->items = &list->items[at];
    bench->count = end - at;
    bench->problem = NULL;
    bench->trials = calloc((size_t)bench->count, sizeof *bench->trials);
    if (!bench->trials) return ft_fail(FT_E_MEMORY, "no memory for %d trials", bench->count);
    const int status = run_request(bench);
    free(bench->trials);
    run->next = request + 1;
    run->requests += status == FT_OK;
    if (status == FT_E_DEVICE || status == FT_E_IO) return status;
    if (status != FT_OK) fprintf(stderr, "request %d: %s\n", request, ft_detail());
  }
  run->next = list->request_count;
  return FT_OK;
}

int ft_many_run(fatune_session *session, const struct ft_many_list *list, struct ft_many_run *run) {
  struct bench bench = {.session = session, .run = run};
  struct ft_compiler *compiler;
  run->next = run->from;
  FT_TRY(ft_session_needs_device(session));
  ft_session_compiler(session, &compiler); /* its version names the kernels */
  session->may_compile = false;
  FT_TRY(ft_session_enter(session));
  ft_nvml_open(&bench.nvml, &session->driver, session->device.handle);
  int status = ft_driver_status(&session->driver, session->driver.stream_create(&bench.stream, 0),
                                "cuStreamCreate");
  if (status == FT_OK) status = run_all(&bench, list);
  if (status != FT_E_DEVICE) {
    if (bench.stream) session->driver.stream_destroy(bench.stream);
    ft_session_leave(session);
  }
  ft_nvml_close(bench.nvml);
  return status;
}
