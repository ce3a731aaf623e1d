/* measure.h: timing of kernels on the GPU.
 * in -> out: a launch -> samples in microseconds.
 * Policy "events-warm/3": after a warm-up, in which the repeats are doubled until one interval of
 * CUDA events is long enough, they are as many as make it so; a sample is an interval / its
 * repeats. Repeats of a short launch are one graph (replay.h). L2 is left as the previous repeat
 * left it, as in a training step that runs layer after layer on tensors larger than L2. A candidate
 * is measured in turn with the best one so far, finalists A B C A B C ..., so that all suffer the
 * same drift of the clock. The policy is part of the trial key. */
#ifndef TUNER_MEASURE_H
#define TUNER_MEASURE_H

#include "cache/trial.h"
#include "runtime/fatune.h"
#include "runtime/nvml.h"
#include "tuner/search/replay.h"

#define FT_POLICY "events-warm/3"
/* The policy of ragged requests. It measures in the same way; the lengths of the sequences are
 * those that ft_sequences_make gives with `alike` (tuner/verify/sequences.h). */
#define FT_POLICY_RAGGED "events-warm-ragged/2"

struct ft_timing {
  double samples_us[FT_TRIAL_SAMPLES];
  int sample_count;
  double median_us, spread_us, best_us;
  int sm_clock_mhz;
};

struct ft_measure_policy {
  double warmup_us;  /* the least duration of the warm-up */
  double sample_us;  /* the least duration of an interval */
  int samples;       /* <= FT_TRIAL_SAMPLES */
  double give_up_us; /* no samples but one if two runs take longer; 0: never */
};

/* Times one candidate. Two runs go before the samples; if the second takes longer than give_up_us,
 * and a third does, the shorter of both is the only sample. FT_E_DEVICE when a launch fails or the
 * GPU does not answer within FT_RUN_SECONDS. */
int ft_measure(struct ft_timing *timing, fatune_session *session, struct ft_nvml *nvml,
               const struct ft_runnable *runnable, const struct ft_measure_policy *policy,
               cu_stream stream);

/* Times `count` candidates in rounds: one sample of each in turn. `timings` has `count` entries.
 * give_up_us concerns the first candidate alone: if it is given up, it has one sample and the
 * others have none. */
int ft_measure_interleaved(struct ft_timing *timings, fatune_session *session, struct ft_nvml *nvml,
                           const struct ft_runnable *runnables, int count,
                           const struct ft_measure_policy *policy, cu_stream stream);

/* Fills median, spread and best in from the samples. */
void ft_timing_summarise(struct ft_timing *timing);

#endif
