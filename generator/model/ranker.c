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

/* By what a sum of trees says that a prediction by hand is to be multiplied. */
static double factor_of_sum(double sum) {
  static const double MOST = 1.2; /* of the logarithm: beyond it the data says nothing */
  return exp(fmin(MOST, fmax(-MOST, sum)));
}

/* The factors by which the fit corrects predictions by hand, of up to FT_TREE_LANES configs. The
 * features of the last config stay in the ranker. */
static void factors_of_lot(struct ft_ranker *ranker, const struct ft_ranked *lot, int count,
                           double *factors) {
  struct ft_feature_lanes lanes = {0};
  double sums[FT_TREE_LANES] = {0};
  for (int n = 0; n < count; n++) {
    const struct ft_modelled of = modelled(ranker, &lot[n].config);
    ft_config_features(&ranker->features, &of, &lot[n].by_hand, &ranker->standard);
    for (int f = 0; f < FT_FEATURES; f++) lanes.of[f][n] = ranker->features.of[f];
  }
  if (ranker->trees) ft_trees_sums(ranker->trees, &lanes, sums);
  for (int n = 0; n < count; n++) factors[n] = factor_of_sum(sums[n]);
}

/* The same by the questions, of up to FT_QUESTION_LANES configs. */
static void factors_by_questions(struct ft_ranker *ranker, const struct ft_ranked *lot, int count,
                                 double *factors) {
  struct ft_features features[FT_QUESTION_LANES];
  double sums[FT_QUESTION_LANES];
  for (int n = 0; n < count; n++) {
    const struct ft_modelled of = modelled(ranker, &lot[n].config);
    features[n] = ranker->features;
    ft_config_features(&features[n], &of, &lot[n].by_hand, &ranker->standard);
  }
  ft_questions_sums(ranker->questions, features, count, sums);
  for (int n = 0; n < count; n++) factors[n] = factor_of_sum(sums[n]);
}

static void factors_of(struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                       double *factors) {
  const int most = ranker->questions ? FT_QUESTION_LANES : FT_TREE_LANES;
  for (int n = 0; n < count; n += most) {
    const int lot = count - n < most ? count - n : most;
    if (ranker->questions)
      factors_by_questions(ranker, list + n, lot, factors + n);
    else
      factors_of_lot(ranker, list + n, lot, factors + n);
  }
}

static double factor_of(struct ft_ranker *ranker, const struct ft_config *config,
                        const struct ft_prediction *by_hand) {
  double factor;
  factors_of(ranker, &(struct ft_ranked){*config, *by_hand}, 1, &factor);
  return factor;
}

double ft_ranker_us(struct ft_ranker *ranker, const struct ft_config *config,
                    const struct ft_prediction *by_hand) {
  return by_hand->us * factor_of(ranker, config, by_hand);
}

void ft_ranker_us_of(struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                     double *us) {
  factors_of(ranker, list, count, us);
  for (int n = 0; n < count; n++) us[n] *= list[n].by_hand.us;
}

void ft_ranker_promises(struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                        double *us) {
  factors_of(ranker, list, count, us);
  for (int n = 0; n < count; n++) us[n] = list[n].by_hand.us * sqrt(us[n]);
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
