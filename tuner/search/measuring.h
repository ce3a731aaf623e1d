/* measuring.h: what happens to a candidate once it is compiled.
 * in -> out: compiled candidate -> outcome and time. There are two kinds: on_machine.c runs and
 * times the candidate on a machine, by_model.c asks the model. search.c does the rest for both. */
#ifndef TUNER_MEASURING_H
#define TUNER_MEASURING_H

#include "tuner/search/candidates.h"
#include "tuner/search/contest.h"

struct ft_attempt {
  struct ft_trial trial;
  double us;    /* if the trial has a time: scaled so that the times of this search compare */
  void *loaded; /* what the rig loaded, for the finals; else NULL */
};

struct ft_measuring {
  void *payload;

  /* On entry the attempt's trial has the kernel's figures; the call adds its outcome and its time.
   * A failure of the candidate becomes its outcome, and the call returns FT_OK. FT_E_DEVICE means
   * that the GPU is lost; the trial has its outcome then, too. incumbent: the best so far, if the
   * kind has finals. */
  int (*attempt)(void *payload, int candidate, const struct ft_kernel *kernel,
                 const struct ft_incumbent *incumbent, struct ft_attempt *attempt);

  bool has_finals; /* true: the near-best are measured again, in turn; false: a row is recorded at
                      once, as the attempt left it */
  int patience; /* effort normal ends after so many candidates without an improvement; 0: never */
};

#endif
