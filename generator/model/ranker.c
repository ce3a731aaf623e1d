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
  ranker->trees = ft_fit_trees_of_pass(request->pass, arch);
  return FT_OK;
}

struct ft_prediction ft_ranker_by_hand(const struct ft_ranker *ranker,
                                       const struct ft_config *config) {
  const struct ft_modelled of = modelled(ranker, config);
  return ft_model_by_hand(&of);
}

struct ft_features ft_ranker_features(const struct ft_ranker *ranker,
                                      const struct ft_ranked *ranked) {
  const struct ft_modelled of = modelled(ranker, &ranked->config);
  struct ft_features features = ranker->features;
  ft_config_features(&features, &of, &ranked->by_hand, &ranker->standard);
  return features;
}

/* Configs of one family, at most FT_TREE_LANES, and their places in a list. */
struct lot {
  int at[FT_TREE_LANES];
  int count;
};

static void add_sums(const struct ft_trees *trees, const struct ft_features *features, int count,
                     double *sums) {
  double more[FT_TREE_LANES];
  if (!trees) return;
  ft_trees_sums(trees, features, count, more);
  for (int n = 0; n < count; n++) sums[n] += more[n];
}

/* The factors by which the fit corrects predictions by hand. */
static void factors_of_lot(const struct ft_ranker *ranker, const struct ft_ranked *list,
                           const struct lot *lot, double *factors) {
  static const double MOST = 1.2; /* of the logarithm: beyond it the data says nothing */
  const struct ft_family *const family = list[lot->at[0]].config.family;
  struct ft_features features[FT_TREE_LANES] = {{{0}}};
  double sums[FT_TREE_LANES] = {0};
  for (int n = 0; n < lot->count; n++) features[n] = ft_ranker_features(ranker, &list[lot->at[n]]);
  add_sums(ranker->trees, features, lot->count, sums);
  add_sums(ft_fit_trees_of_family(family, ranker->of.arch), features, lot->count, sums);
  for (int n = 0; n < lot->count; n++) factors[lot->at[n]] = exp(fmin(MOST, fmax(-MOST, sums[n])));
}

static void factors_of(const struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                       double *factors) {
  const struct ft_family *family;
  for (int f = 0; (family = ft_family_at(f)) != NULL; f++) {
    struct lot lot = {.count = 0};
    for (int n = 0; n < count; n++) {
      if (list[n].config.family != family) continue;
      lot.at[lot.count++] = n;
      if (lot.count < FT_TREE_LANES) continue;
      factors_of_lot(ranker, list, &lot, factors);
      lot.count = 0;
    }
    if (lot.count > 0) factors_of_lot(ranker, list, &lot, factors);
  }
}

static double factor_of(const struct ft_ranker *ranker, const struct ft_config *config,
                        const struct ft_prediction *by_hand) {
  const struct lot lot = {.at = {0}, .count = 1};
  double factor = 1;
  factors_of_lot(ranker, &(struct ft_ranked){*config, *by_hand}, &lot, &factor);
  return factor;
}

double ft_ranker_us(const struct ft_ranker *ranker, const struct ft_config *config,
                    const struct ft_prediction *by_hand) {
  return by_hand->us * factor_of(ranker, config, by_hand);
}

void ft_ranker_us_of(const struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                     double *us) {
  factors_of(ranker, list, count, us);
  for (int n = 0; n < count; n++) us[n] *= list[n].by_hand.us;
}

void ft_ranker_promises(const struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                        double *us) {
  factors_of(ranker, list, count, us);
  for (int n = 0; n < count; n++) us[n] = list[n].by_hand.us * sqrt(us[n]);
}

double ft_ranker_promise(const struct ft_ranker *ranker, const struct ft_config *config) {
  const struct ft_prediction by_hand = ft_ranker_by_hand(ranker, config);
  return by_hand.us * sqrt(factor_of(ranker, config, &by_hand));
}

/* The trees know kernels by what is estimated of them. */
double ft_ranker_compiled_us(const struct ft_ranker *ranker, const struct ft_config *config,
                             int registers, int spill_bytes) {
  const struct ft_prediction estimated = ft_ranker_by_hand(ranker, config);
  struct ft_modelled of = modelled(ranker, config);
  of.registers = registers;
  of.spill_bytes = spill_bytes;
  return ft_model_by_hand(&of).us * factor_of(ranker, config, &estimated);
}
