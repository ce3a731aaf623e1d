/* ranker.h: predicted times of many configs of one request, by hand and by what was fitted.
 * in -> out: request + arch -> a ranker; config -> microseconds. */
#ifndef GENERATOR_RANKER_H
#define GENERATOR_RANKER_H

#include "generator/model/trees.h"

/* What the configs of a request have in common. request and arch must outlive it. */
struct ft_ranker {
  struct ft_modelled of; /* of all but the config */
  struct ft_request alike;
  struct ft_standard standard;
  struct ft_features features;  /* those of the request */
  const struct ft_trees *trees; /* of the pass; NULL: nothing was recorded, all is by hand */
};

/* FT_E_UNSUPPORTED where the request has no config. score may be NULL. */
int ft_ranker_open(struct ft_ranker *ranker, const struct ft_request *request,
                   const struct ft_arch *arch, const struct ft_score_costs *score);

struct ft_prediction ft_ranker_by_hand(const struct ft_ranker *ranker,
                                       const struct ft_config *config);

/* A config with its prediction by hand. */
struct ft_ranked {
  struct ft_config config;
  struct ft_prediction by_hand;
};

/* What the trees know of it. */
struct ft_features ft_ranker_features(const struct ft_ranker *ranker,
                                      const struct ft_ranked *ranked);

/* That prediction's time, corrected by the fit. */
double ft_ranker_us(const struct ft_ranker *ranker, const struct ft_config *config,
                    const struct ft_prediction *by_hand);

/* The same of many configs. FT_TREE_LANES of a family take hardly longer than one. */
void ft_ranker_us_of(const struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                     double *us);

/* What a search orders its candidates by: the geometric mean of that and the prediction by hand. By
 * the fit alone it would try little besides the tile of the default. */
double ft_ranker_promise(const struct ft_ranker *ranker, const struct ft_config *config);

/* The same of many configs. */
void ft_ranker_promises(const struct ft_ranker *ranker, const struct ft_ranked *list, int count,
                        double *us);

/* The same as ft_ranker_us of a compiled kernel, by its registers and spills. */
double ft_ranker_compiled_us(const struct ft_ranker *ranker, const struct ft_config *config,
                             int registers, int spill_bytes);

#endif
