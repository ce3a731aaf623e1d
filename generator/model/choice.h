/* choice.h: whether the model knows a config that is faster than the default.
 * in -> out: request + arch -> a config. */
#ifndef GENERATOR_CHOICE_H
#define GENERATOR_CHOICE_H

#include "generator/model/ranker.h"

/* The config for a request of which nothing was measured. *gain is 1 where that is the default.
 * Otherwise the default should take so many times as long. A class of requests (lengths 0) and a
 * GPU without a fit have their default. score may be NULL. */
int ft_model_choose(const struct ft_request *request, const struct ft_arch *arch,
                    const struct ft_score_costs *score, struct ft_config *config, double *gain);

/* How much faster than the ranker's default a config must be predicted to be, for it to be taken.
 */
double ft_choice_margin(const struct ft_ranker *ranker, const struct ft_config *config);

#endif
