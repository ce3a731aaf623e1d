/* measure.h: timing of kernels on the GPU.
 * in -> out: a launch -> samples in microseconds.
 * Policy "events-warm/2": warm-up, then repeats doubled until one interval of CUDA events is long
 * enough; the samples are interval / repeats; L2 is left as the previous repeat left it, as in a
 * training step that runs layer after layer on tensors larger than L2. A candidate is measured in
 * turn with the best one so far, finalists A B C A B C ..., so that clock drift hits all alike. The
 * policy is part of the trial key.
 */
#ifndef TUNER_MEASURE_H
#define TUNER_MEASURE_H

#include "cache/trial.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/nvml.h"

#define FT_POLICY "events-warm/2"

struct ft_timing {
  double samples_us[FT_TRIAL_SAMPLES];
  int sample_count;
  double median_us, spread_us, best_us;
  int sm_clock_mhz;
};

struct ft_measure_policy {
  double warmup_us;  /* run at least this long first */
  double sample_us;  /* shortest interval of one sample */
  int samples;       /* <= FT_TRIAL_SAMPLES */
  double give_up_us; /* stop after the first sample when one run takes longer; 0: never */
};

/* One runnable candidate: launch() enqueues it once on stream. */
struct ft_runnable {
  int (*launch)(void *payload, cu_stream stream);
  void *payload;
};

/* Times one candidate. Two runs go before; where the second takes longer than give_up_us it is the
 * only sample. FT_E_DEVICE when a launch fails or the GPU does not come back within FT_RUN_SECONDS.
 */
int ft_measure(struct ft_timing *timing, fatune_session *session, struct ft_nvml *nvml,
               const struct ft_runnable *runnable, const struct ft_measure_policy *policy,
               cu_stream stream);

/* Interleaved: round by round one sample of each. timings has count entries. give_up_us concerns
 * the first alone: where it is given up, it has one sample and the others have none. */
int ft_measure_interleaved(struct ft_timing *timings, fatune_session *session, struct ft_nvml *nvml,
                           const struct ft_runnable *runnables, int count,
                           const struct ft_measure_policy *policy, cu_stream stream);

/* Fills median, spread and best from the samples. */
void ft_timing_summarise(struct ft_timing *timing);

#endif
