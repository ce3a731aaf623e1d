/* many_replay.h: a search over times that were recorded.
 * in -> out: file of trials (trials_file.h), request, GPU -> what a search of normal effort would
 * have tried and found. It is the search itself, on a machine that answers from the trials; what
 * they do not have fails to compile there. */
#ifndef TUNER_MANY_REPLAY_H
#define TUNER_MANY_REPLAY_H

#include "generator/arch.h"
#include "tuner/search/tune_options.h"

/* Of several trials of a config the last counts. *missing: how many were tried without a trial. */
int ft_many_replay(const char *path, const struct ft_request *request, const struct ft_arch *arch,
                   int jobs, struct ft_tune_summary *summary, int *missing);

#endif
