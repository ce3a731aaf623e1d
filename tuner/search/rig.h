/* rig.h: what the search needs from the machine it tunes for, as functions.
 * in -> out: config -> kernel -> loaded -> verdict, timing, row.
 * The real one is gpu_rig.c; tests put a simulated machine in its place. */
#ifndef TUNER_RIG_H
#define TUNER_RIG_H

#include "cache/kernel.h"
#include "tuner/search/measure.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/stopwatch.h"

struct ft_rig {
  void *payload;

  /* Called from many threads at once. FT_E_COMPILE, FT_E_ARGUMENT, FT_E_UNSUPPORTED are the
   * candidate's fault and become its outcome; any other failure ends the search. Caller frees
   * kernel. */
  int (*compile)(void *payload, const struct ft_config *config, struct ft_kernel *kernel);

  /* The rest is called from one thread. Failures are the candidate's. */
  int (*load)(void *payload, const struct ft_config *config, const struct ft_kernel *kernel,
              void **loaded);
  void (*unload)(void *payload, void *loaded);
  int (*verify)(void *payload, void *loaded, struct ft_comparison *comparison);
  /* In turn with `pace`, another candidate, so that both had the same clock; NULL: alone. Given up
   * (ft_measure_interleaved), or alone: beside has no samples. */
  int (*measure)(void *payload, void *loaded, void *pace, double give_up_us,
                 struct ft_timing *timing, struct ft_timing *beside);
  int (*measure_in_turn)(void *payload, void *const *loaded, int count, struct ft_timing *timings);
  enum ft_health (*health)(void *payload); /* asked after a failure */

  /* The store. recall: the row of a config that was tried before under the same conditions. keep:
   * the kernel may be wanted again. Failures are the caller's to ignore or report. */
  int (*record)(void *payload, const struct ft_trial *trial);
  bool (*recall)(void *payload, const struct ft_config *config, struct ft_trial *trial);
  int (*keep)(void *payload, const struct ft_kernel *kernel);
};

#endif
