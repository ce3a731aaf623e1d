/* loaded.c: a config on the GPU. in -> out: see loaded.h. */
#include "tuner/search/loaded.h"

#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/scores.h"
#include "tuner/verify/stopwatch.h"
#include "runtime/session.h"
#include "tuner/verify/problem_verify.h"

int ft_loaded_make(struct ft_loaded **out, fatune_session *session, cu_stream stream,
                   const struct ft_request *request, const struct ft_arch *arch,
                   const struct ft_config *config) {
  /* It holds tensor maps, whose alignment is more than malloc's. */
  struct ft_loaded *const made = aligned_alloc(_Alignof(struct ft_loaded), sizeof *made);
  *out = NULL;
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for a candidate");
  memset(made, 0, sizeof *made);
  made->session = session;
  made->stream = stream;
  made->config = *config;
  made->budget = ft_budget_of(request, config, arch);
  made->plan = (struct ft_launch_plan){
      .request = request, .config = &made->config, .arch = arch, .budget = &made->budget};
  const int status = ft_session_score(session, request->score, &made->plan.score);
  if (status != FT_OK)
    free(made);
  else
    *out = made;
  return status;
}

static int enqueue(void *payload, cu_stream stream) {
  const struct ft_loaded *const loaded = payload;
  return ft_launch_enqueue(&loaded->launch, &loaded->session->driver, &loaded->module, stream);
}

static int run_and_wait(void *payload, const fatune_arguments *arguments) {
  const struct ft_loaded *const loaded = payload;
  (void)arguments; /* the launch is prepared */
  FT_TRY(enqueue(payload, loaded->stream));
  return ft_stream_wait(loaded->session, loaded->stream);
}

/* Prepares all launches for a problem, with a workspace that is large enough for each. A problem's
 * workspace is allocated anew when a larger one is wanted, so its address is read here and not when
 * a config is loaded. */
static int aim(struct ft_loaded *const *all, int count, struct ft_problem *problem,
               const struct ft_request *request) {
  size_t most = 0, bytes;
  for (int n = 0; n < count; n++) {
    all[n]->plan.request = request;
    FT_TRY(ft_launch_workspace(&all[n]->plan, ft_problem_arguments(problem), &bytes));
    if (bytes > most) most = bytes;
  }
  FT_TRY(ft_problem_reserve(problem, most));
  for (int n = 0; n < count; n++) {
    FT_TRY(ft_launch_prepare(&all[n]->launch, &all[n]->plan, ft_problem_arguments(problem)));
    FT_TRY(ft_launch_map_tensors(&all[n]->launch, &all[n]->session->driver));
  }
  return FT_OK;
}

int ft_loaded_check(struct ft_loaded *loaded, struct ft_problem *problem,
                    const struct ft_request *request, int rows, int threads, bool twice,
                    struct ft_comparison *comparison) {
  const struct ft_problem_run run = {run_and_wait, loaded, loaded->stream, twice};
  FT_TRY(aim(&loaded, 1, problem, request));
  return ft_problem_check(problem, &run, rows, threads, comparison);
}

int ft_loaded_measure(struct ft_loaded *const *all, int count, struct ft_problem *problem,
                      const struct ft_request *request, struct ft_nvml *nvml,
                      const struct ft_measure_policy *policy, struct ft_timing *timings) {
  struct ft_runnable runnables[FT_TRIAL_SAMPLES];
  if (count > FT_TRIAL_SAMPLES)
    return ft_fail(FT_E_ARGUMENT, "%d candidates cannot be measured in turn, at most %d", count,
                   FT_TRIAL_SAMPLES);
  if (count == 0) return FT_OK;
  for (int n = 0; n < count; n++)
    runnables[n] = (struct ft_runnable){.launch = enqueue, .payload = all[n]};
  FT_TRY(aim(all, count, problem, request));
  return ft_measure_interleaved(timings, all[0]->session, nvml, runnables, count, policy,
                                all[0]->stream);
}
