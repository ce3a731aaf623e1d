/* measure.c: CUDA events around repeated launches.
 * in -> out: runnables + policy -> samples in microseconds per launch, median, spread, clock.
 * All samples of one call are queued before the first is waited for, so the GPU never idles between
 * them: the figures contain neither launch latency nor a clock that falls and rises again. */
#include "tuner/search/measure.h"

#include <math.h>
#include <string.h>

#include "cache/samples.h"
#include "generator/status.h"
#include "tuner/search/replay.h"
#include "tuner/verify/stopwatch.h"

_Static_assert((int)FT_STOPWATCH_EVENTS > (int)FT_TRIAL_SAMPLES,
               "an event before each sample, one after all");

enum { REPEATS_MOST = 1 << 14 };
/* A single run is timed together with its launch latency, so below this its time says nothing. */
static const double GIVE_UP_LEAST_US = 500;

void ft_timing_summarise(struct ft_timing *timing) {
  double sorted[FT_TRIAL_SAMPLES];
  memcpy(sorted, timing->samples_us, sizeof sorted);
  const struct ft_summary_of_samples all =
      ft_samples_summarise(sorted, (size_t)timing->sample_count);
  timing->median_us = all.median;
  timing->spread_us = all.spread;
  timing->best_us = all.least;
}

static int launch_times(const struct ft_runnable *runnable, cu_stream stream, int repeats) {
  for (int n = 0; n < repeats; n++) FT_TRY(runnable->launch(runnable->payload, stream));
  return FT_OK;
}

/* The time of one interval of `repeats` launches. */
static int time_once(struct ft_stopwatch *watch, const struct ft_runnable *runnable, int repeats,
                     double *us) {
  FT_TRY(ft_stopwatch_record(watch, 0));
  FT_TRY(launch_times(runnable, watch->stream, repeats));
  FT_TRY(ft_stopwatch_record(watch, 1));
  FT_TRY(ft_stopwatch_wait(watch, 1));
  return ft_stopwatch_interval(watch, 0, us);
}

/* Of an interval that need not be longer than the policy says; a tenth more, as the clock may rise.
 */
static int repeats_for(double sample_us, double each_us) {
  const double wanted = ceil(1.1 * sample_us / each_us);
  return wanted < 1 ? 1 : wanted < REPEATS_MOST ? (int)wanted : REPEATS_MOST;
}

/* Doubles the repeats until one interval is long enough. These runs are the warm-up, and more
 * follow until it has lasted long enough, too. If the second run and one more take longer than
 * give_up_us, the shorter becomes the only sample: the candidate is given up. */
static int calibrate(struct ft_stopwatch *watch, struct ft_timing *timing,
                     const struct ft_runnable *runnable, const struct ft_measure_policy *policy,
                     int *repeats, double *each_us) {
  double us, warm_us = 0;
  *repeats = 1;
  FT_TRY(time_once(
      watch, runnable, 1,
      &us)); /* the first run loads code and fills L2: its time says nothing about the kernel */
  FT_TRY(time_once(watch, runnable, 1, &us));
  const double too_long = fmax(policy->give_up_us, GIVE_UP_LEAST_US);
  if (policy->give_up_us > 0 && us > too_long) {
    double again; /* one run may have been held up by the host */
    FT_TRY(time_once(watch, runnable, 1, &again));
    us = fmin(us, again);
    if (us > too_long) {
      timing->samples_us[timing->sample_count++] = us;
      return FT_OK;
    }
  }
  for (warm_us = us; us < policy->sample_us && *repeats < REPEATS_MOST; warm_us += us) {
    *repeats *= 2;
    FT_TRY(time_once(watch, runnable, *repeats, &us));
  }
  while (warm_us < policy->warmup_us && us > 0) {
    FT_TRY(time_once(watch, runnable, *repeats, &us));
    warm_us += us;
  }
  *each_us = us / *repeats;
  if (us > policy->sample_us) *repeats = repeats_for(policy->sample_us, *each_us);
  return FT_OK;
}

/* To be asked after calibrate. */
static bool given_up(const struct ft_timing *timing) {
  return timing->sample_count > 0;
}

static int samples_of(const struct ft_measure_policy *policy) {
  const int wanted = policy->samples > 0 ? policy->samples : 1;
  return wanted < FT_TRIAL_SAMPLES ? wanted : FT_TRIAL_SAMPLES;
}

static int sample(struct ft_stopwatch *watch, struct ft_timing *timing, struct ft_nvml *nvml,
                  const struct ft_replay *replay, int samples) {
  FT_TRY(
      launch_times(replay->runnable, watch->stream,
                   1)); /* so that the GPU is busy when the first launch that counts is enqueued */
  FT_TRY(ft_stopwatch_record(watch, 0));
  for (int n = 0; n < samples; n++) {
    FT_TRY(ft_replay_run(replay, watch->stream));
    FT_TRY(ft_stopwatch_record(watch, n + 1));
  }
  timing->sm_clock_mhz = ft_nvml_sm_clock(nvml); /* the samples are running now */
  FT_TRY(ft_stopwatch_wait(watch, samples));
  for (int n = 0; n < samples; n++) {
    double us;
    FT_TRY(ft_stopwatch_interval(watch, n, &us));
    timing->samples_us[timing->sample_count++] = us / replay->repeats;
  }
  return FT_OK;
}

static int measure_one(struct ft_stopwatch *watch, struct ft_timing *timing,
                       fatune_session *session, struct ft_nvml *nvml,
                       const struct ft_runnable *runnable, const struct ft_measure_policy *policy) {
  int repeats;
  double us;
  struct ft_replay replay;
  FT_TRY(calibrate(watch, timing, runnable, policy, &repeats, &us));
  if (given_up(timing)) return FT_OK;
  ft_replay_open(&replay, session, runnable, repeats, us, watch->stream);
  const int status = sample(watch, timing, nvml, &replay, samples_of(policy));
  ft_replay_close(&replay);
  return status;
}

int ft_measure(struct ft_timing *timing, fatune_session *session, struct ft_nvml *nvml,
               const struct ft_runnable *runnable, const struct ft_measure_policy *policy,
               cu_stream stream) {
  struct ft_stopwatch watch;
  int status;
  *timing = (struct ft_timing){0};
  FT_CHECK(ft_stopwatch_open(&watch, session, stream, samples_of(policy) + 1));
  FT_CHECK(measure_one(&watch, timing, session, nvml, runnable, policy));
  ft_timing_summarise(timing);
done:
  ft_stopwatch_close(&watch);
  return status;
}

/* One sample of each in turn, all queued before the first is waited for. */
static int one_round(struct ft_stopwatch *watch, struct ft_timing *timings,
                     const struct ft_replay *replays, int count, struct ft_nvml *nvml,
                     int *clock_mhz) {
  FT_TRY(launch_times(replays[0].runnable, watch->stream, 1)); /* as in sample */
  FT_TRY(ft_stopwatch_record(watch, 0));
  for (int n = 0; n < count; n++) {
    FT_TRY(ft_replay_run(&replays[n], watch->stream));
    FT_TRY(ft_stopwatch_record(watch, n + 1));
  }
  if (nvml) *clock_mhz = ft_nvml_sm_clock(nvml); /* the round is running now */
  FT_TRY(ft_stopwatch_wait(watch, count));
  for (int n = 0; n < count; n++) {
    double us;
    FT_TRY(ft_stopwatch_interval(watch, n, &us));
    timings[n].samples_us[timings[n].sample_count++] = us / replays[n].repeats;
  }
  return FT_OK;
}

int ft_measure_interleaved(struct ft_timing *timings, fatune_session *session, struct ft_nvml *nvml,
                           const struct ft_runnable *runnables, int count,
                           const struct ft_measure_policy *policy, cu_stream stream) {
  struct ft_stopwatch watch;
  struct ft_replay replays[FT_TRIAL_SAMPLES] = {0};
  struct ft_measure_policy own = *policy;
  int status = FT_OK;
  if (count < 1 || count > FT_TRIAL_SAMPLES)
    return ft_fail(FT_E_ARGUMENT, "%d kernels are to be measured in turn; allowed: 1 to %d", count,
                   FT_TRIAL_SAMPLES);
  for (int n = 0; n < count; n++) timings[n] = (struct ft_timing){0};
  FT_CHECK(ft_stopwatch_open(&watch, session, stream, count + 1));
  for (int n = 0; n < count; n++) {
    int repeats;
    double us = 0;
    FT_CHECK(calibrate(&watch, &timings[n], &runnables[n], &own, &repeats, &us));
    if (given_up(&timings[n])) {
      ft_timing_summarise(&timings[n]);
      goto done;
    }
    own.give_up_us = 0;
    ft_replay_open(&replays[n], session, &runnables[n], repeats, us, stream);
  }
  int clock_mhz = 0;
  for (int round = 0; round < samples_of(policy); round++) {
    const bool halfway = round == samples_of(policy) / 2;
    FT_CHECK(one_round(&watch, timings, replays, count, halfway ? nvml : NULL, &clock_mhz));
  }
  for (int n = 0; n < count; n++) {
    timings[n].sm_clock_mhz = clock_mhz;
    ft_timing_summarise(&timings[n]);
  }
done:
  for (int n = 0; n < count; n++) ft_replay_close(&replays[n]);
  ft_stopwatch_close(&watch);
  return status;
}
