/* measuring.h: what happens to a candidate once it is compiled.
 * in -> out: compiled candidate -> outcome and time. Two kinds: it is run and timed on a machine
 * (on_machine.c), or the model says its time (by_model.c). search.c does the rest for both. */
#ifndef TUNER_MEASURING_H
#define TUNER_MEASURING_H

#include "tuner/search/candidates.h"
#include "tuner/search/contest.h"

struct ft_attempt {
  struct ft_trial trial;
  double us;    /* where the trial has a time: on the scale on which this search's times compare */
  void *loaded; /* by the rig, for the finals; else NULL */
};

struct ft_measuring {
  void *payload;

  /* The attempt's trial is begun and has the kernel's figures; it gets its outcome, and its time.
   * A failure of the candidate is its outcome and FT_OK; FT_E_DEVICE means that the GPU is lost,
   * with the outcome there all the same. pace: the best so far, where there are finals. */
  int (*attempt)(void *payload, int candidate, const struct ft_kernel *kernel,
                 const struct ft_pace *pace, struct ft_attempt *attempt);

  bool has_finals; /* the near-best are measured again, in turn; else rows are recorded at once, as
                      the attempt left them */
  int patience; /* effort normal ends after so many candidates without an improvement; 0: never */
};

#endif
