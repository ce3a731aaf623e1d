/* many_run.h: the configs of a list, timed on the GPU.
 * in -> out: session, list -> trials in a file (trials_file.h): each config is timed in turn with
 * the first of its request. Where finals are wanted, the first two of the request and the fastest
 * others are then verified, and timed in turn with each other. Kernels come from the session's
 * cache alone. Inputs are random; of a backward O and LSE are made up. */
#ifndef TUNER_MANY_RUN_H
#define TUNER_MANY_RUN_H

#include "generator/arch.h"
#include "runtime/fatune.h"
#include "tuner/cli/fit/many_list.h"
#include "tuner/cli/fit/trials_append.h"

struct ft_many_run {
  int from;       /* the first request to be timed */
  double seconds; /* no request is begun later */
  int finalists;  /* besides the first two; 0: no finals */
  struct ft_trials_append *out;

  /* what was done */
  int requests, timed, missing, ruled_out, failed, wrong;
  int next; /* the request to go on with */
};

/* FT_E_DEVICE where a launch took the GPU's context with it: run->next is the request after that
 * one. FT_E_IO where a trial could not be written. Other failures are a line on stderr each. */
int ft_many_run(fatune_session *session, const struct ft_many_list *list, struct ft_many_run *run);

#endif
