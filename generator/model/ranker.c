/* ranker.c: predicted times of many configs of one request.
 * in -> out: request + arch -> a ranker; config -> microseconds. */
#include "generator/model/ranker.h"

#include <math.h>

#include "generator/model/fit.h"
#include "generator/model/model.h"
#include "generator/space.h"
#include "generator/status.h"

static struct ft_modelled modelled(const struct ft_ranker *ranker, const struct ft_config *config) {
  struct ft_modelled of = ranker->of;
  of.request = &ranker->alike;
  of.config = config;
  return of;
}

int ft_ranker_open(struct ft_ranker *ranker, const struct ft_request *request,
                   const struct ft_arch *arch, const struct ft_score_costs *score) {
  *ranker = (struct ft_ranker){.of = {.arch = arch}, .alike = ft_request_alike(request)};
  if (score) ranker->of.score = *score;
  FT_TRY(ft_default_config(request, arch, &ranker->standard.config));
  ranker->standard.prediction = ft_ranker_by_hand(ranker, &ranker->standard.config);
  ranker->features = ft_request_features(&ranker->alike);
  ranker->trees = ft_fit_trees(request->pass, arch);
  return FT_OK;
}

struct ft_prediction ft_ranker_by_hand(const struct ft_ranker *ranker,
                                       const struct ft_config *config) {
  const struct ft_modelled of = modelled(ranker, config);
  return ft_model_by_hand(&of);
}

/* What a prediction by hand is to be multiplied by; the features are filled in. */
static double factor_of(struct ft_ranker *ranker, const struct ft_config *config,
                        const struct ft_prediction *by_hand) {
  static const double MOST = 1.2; /* of the logarithm: beyond it the data says nothing */
  const struct ft_modelled of = modelled(ranker, config);
  ft_config_features(&ranker->features, &of, by_hand, &ranker->standard);
  if (!ranker->trees) return 1;
  const double sum = ft_trees_sum(ranker->trees, &ranker->features);
  return exp(fmin(MOST, fmax(-MOST, sum)));
}

double ft_ranker_us(struct ft_ranker *ranker, const struct ft_config *config,
                    const struct ft_prediction *by_hand) {
  return by_hand->us * factor_of(ranker, config, by_hand);
}

double ft_ranker_promise(struct ft_ranker *ranker, const struct ft_config *config) {
  const struct ft_prediction by_hand = ft_ranker_by_hand(ranker, config);
  return by_hand.us * sqrt(factor_of(ranker, config, &by_hand));
}

/* The trees know kernels by what is estimated of them. */
double ft_ranker_compiled_us(struct ft_ranker *ranker, const struct ft_config *config,
                             int registers, int spill_bytes) {
  const struct ft_prediction estimated = ft_ranker_by_hand(ranker, config);
  struct ft_modelled of = modelled(ranker, config);
  of.registers = registers;
  of.spill_bytes = spill_bytes;
  return ft_model_by_hand(&of).us * factor_of(ranker, config, &estimated);
}
