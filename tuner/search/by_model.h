/* by_model.h: a compiled candidate, timed by the model.
 * in -> out: a ranker of the request -> struct ft_measuring. */
#ifndef TUNER_BY_MODEL_H
#define TUNER_BY_MODEL_H

#include "generator/model/ranker.h"
#include "tuner/search/measuring.h"

/* Times by the model, from the compiled kernel's registers and spills. What is not the default
 * counts as slower by the margin by which it would have to be faster to be chosen
 * (generator/model/choice). The ranker must outlive the result. */
struct ft_measuring ft_measuring_by_model(struct ft_ranker *ranker);

#endif
