/* loaded.h: a config on the GPU.
 * in -> out: request, config -> a launch; problems -> its verdict, the times of several in turn.
 * The session's context is current throughout. */
#ifndef TUNER_LOADED_H
#define TUNER_LOADED_H

#include "generator/budget.h"
#include "runtime/launch.h"
#include "runtime/module.h"
#include "tuner/search/measure.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"

struct ft_loaded {
  fatune_session *session;
  cu_stream stream;
  struct ft_config config;
  struct ft_module module; /* whoever makes this loads and unloads it */
  struct ft_budget budget;
  struct ft_launch_plan plan;
  struct ft_launch launch; /* prepared for one problem */
};

/* All but the module. Request and arch must outlive it. The caller frees it with free(). */
int ft_loaded_make(struct ft_loaded **out, fatune_session *session, cu_stream stream,
                   const struct ft_request *request, const struct ft_arch *arch,
                   const struct ft_config *config);

/* Runs it on a problem of this request, twice if asked for, and compares rows. */
int ft_loaded_check(struct ft_loaded *loaded, struct ft_problem *problem,
                    const struct ft_request *request, int rows, int threads, bool twice,
                    struct ft_comparison *comparison);

/* Times several, FT_TRIAL_SAMPLES at most, on a problem of this request. */
int ft_loaded_measure(struct ft_loaded *const *all, int count, struct ft_problem *problem,
                      const struct ft_request *request, struct ft_nvml *nvml,
                      const struct ft_measure_policy *policy, struct ft_timing *timings);

#endif
