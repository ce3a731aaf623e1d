/* by_model.h: a compiled candidate, timed by the model.
 * in -> out: request + arch -> struct ft_measuring. */
#ifndef TUNER_BY_MODEL_H
#define TUNER_BY_MODEL_H

#include "generator/score/cost.h"
#include "tuner/search/measuring.h"

/* Times by the model, from the compiled kernel's registers and spills. `what` must outlive the
 * result. */
struct ft_predicted_for {
  const struct ft_request *request;
  const struct ft_arch *arch;
  const struct ft_score_costs *score; /* NULL: none */
};
struct ft_measuring ft_measuring_by_model(const struct ft_predicted_for *what);

#endif
