/* many_replay.h: a search over times that were recorded.
 * in -> out: file of trials (trials_file.h), request, GPU -> what a search of normal effort would
 * have tried and found. The search itself runs, on a simulated machine whose times are those of the
 * file. A config without a trial there fails to compile. */
#ifndef TUNER_MANY_REPLAY_H
#define TUNER_MANY_REPLAY_H

#include "generator/arch.h"
#include "tuner/search/tune_options.h"

/* Of several trials of a config the last counts. *missing: how many were tried without a trial. */
int ft_many_replay(const char *path, const struct ft_request *request, const struct ft_arch *arch,
                   int jobs, struct ft_tune_summary *summary, int *missing);

#endif
