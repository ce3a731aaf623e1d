/* rig.h: what the search needs from the machine that it tunes for, as functions.
 * in -> out: config -> kernel -> loaded -> verdict, timing, row.
 * gpu_rig.c is the real one; tests put a simulated machine in its place. */
#ifndef TUNER_RIG_H
#define TUNER_RIG_H

#include "cache/kernel.h"
#include "tuner/search/measure.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/stopwatch.h"

struct ft_rig {
  void *payload;

  /* Called from many threads at once. FT_E_COMPILE, FT_E_ARGUMENT and FT_E_UNSUPPORTED are the
   * candidate's fault and become its outcome; any other failure ends the search. The caller frees
   * the kernel. */
  int (*compile)(void *payload, const struct ft_config *config, struct ft_kernel *kernel);

  /* Makes what candidates are verified and timed on, while the first of them are compiled. NULL:
   * nothing is to be made. A failure ends the search. */
  int (*prepare)(void *payload);

  /* The functions below are called from one thread. Their failures are the candidate's. */
  int (*load)(void *payload, const struct ft_config *config, const struct ft_kernel *kernel,
              void **loaded);
  void (*unload)(void *payload, void *loaded);
  int (*verify)(void *payload, void *loaded, struct ft_comparison *comparison);
  /* Measures `loaded` in turn with `incumbent`, another candidate, so that both have the same
   * clock; incumbent NULL: alone. `beside`, the incumbent's timing, has no samples if `loaded` ran
   * alone or was given up (ft_measure_interleaved). */
  int (*measure)(void *payload, void *loaded, void *incumbent, double give_up_us,
                 struct ft_timing *timing, struct ft_timing *beside);
  int (*measure_in_turn)(void *payload, void *const *loaded, int count, struct ft_timing *timings);
  enum ft_health (*health)(void *payload); /* asked after a failure */

  /* The store. recall: finds the row of a config that was tried before under the same conditions.
   * keep: stores a kernel that may be wanted again. The caller may ignore their failures. */
  int (*record)(void *payload, const struct ft_trial *trial);
  bool (*recall)(void *payload, const struct ft_config *config, struct ft_trial *trial);
  int (*keep)(void *payload, const struct ft_kernel *kernel);
};

#endif
