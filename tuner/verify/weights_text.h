/* weights_text.h: wrong weights of a row, in words.
 * in -> out: weights used and expected -> the kind of mistake, the keys that it concerns. */
#ifndef TUNER_WEIGHTS_TEXT_H
#define TUNER_WEIGHTS_TEXT_H

#include "tuner/verify/weights.h"

/* The key that shows best what is wrong; -1: no weight is wrong. */
int64_t ft_weights_worst(const struct ft_weights *weights);

/* Says in one line what is wrong with the weights. */
void ft_weights_tell(const struct ft_weights *weights, const struct ft_problem *problem,
                     struct ft_text *text);

/* Writes "key 3" or "keys 8 to 15, 24 to 31 and 40 more" for the numbers n < count with marked[n].
 * A number with unknown[n] (unknown may be NULL) counts as what surrounds it. */
void ft_tell_runs(struct ft_text *text, const char *one, const bool *marked, const bool *unknown,
                  int64_t count);

#endif
