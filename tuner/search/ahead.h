/* ahead.h: the next search is opened before this one ends: its candidates are listed and its first
 * kernels compiled by cores that would wait for the GPU.
 * in -> out: the next request -> its tuning, opened. */
#ifndef TUNER_AHEAD_H
#define TUNER_AHEAD_H

#include "tuner/search/tuning.h"

struct ft_ahead;

int ft_ahead_make(struct ft_ahead **ahead);

/* Opens the request's tuning in a thread; what was opened before and not taken is closed. The
 * options are copied. A failure is not reported here: ft_ahead_take then returns NULL, and ft_tune
 * opens the tuning itself and reports why it cannot. */
void ft_ahead_begin(struct ft_ahead *ahead, fatune_session *session,
                    const struct ft_request *request, const struct ft_tune_options *options);

/* The request's tuning, which is the caller's then; NULL where it is not there, or is no longer
 * current (ft_tuning_is_current). Another request's is closed. ahead NULL: NULL. */
struct ft_tuning *ft_ahead_take(struct ft_ahead *ahead, const struct ft_request *request);

void ft_ahead_free(struct ft_ahead *ahead); /* NULL: nothing */

#endif
