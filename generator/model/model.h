/* model.h: predicted time of a candidate: roofline, occupancy, wave quantisation.
 * in -> out: request + arch + config (+ registers of the compiled kernel) -> microseconds and the
 * terms they are made of. The model orders candidates; it never excludes one by itself. */
#ifndef GENERATOR_MODEL_H
#define GENERATOR_MODEL_H

#include "generator/model/prediction.h"

/* score NULL: the request has none, or it is not known. registers 0: the budget's estimate.
 * spill_bytes > 0 is charged as local traffic. */
struct ft_prediction ft_model(const struct ft_request *request, const struct ft_arch *arch,
                              const struct ft_config *config, const struct ft_score_costs *score,
                              int registers, int spill_bytes);

/* The same without what was fitted to trials (fit.h). */
struct ft_prediction ft_model_by_hand(const struct ft_modelled *of);

/* The most query rows of a tile that persistent blocks take, of all families that serve the request
 * there; 0: none of them has persistent blocks. */
int ft_model_persistent_rows(const struct ft_request *request, const struct ft_arch *arch);

#endif
