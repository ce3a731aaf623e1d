/* model_parts.h: what the models of the families share.
 * in -> out: request + config -> steps of a tile, bytes; a family's model -> struct ft_prediction.
 */
#ifndef TUNER_MODEL_PARTS_H
#define TUNER_MODEL_PARTS_H

#include "tuner/model/model.h"

/* Steps of a tile, over all tiles: mean and largest. */
struct ft_walk {
  double mean, longest;
};
/* From the steps of each tile 0 .. tiles - 1, or of a sample of them. */
typedef double ft_steps_function(const void *context, int64_t tile);
struct ft_walk ft_walk_over(int64_t tiles, ft_steps_function *steps_of, const void *context);
/* Of the query tiles. */
struct ft_walk ft_walk_of(const struct ft_request *request, const struct ft_config *config);

/* Under causal key j is visible to query i when j <= i + shift. */
int64_t ft_causal_shift(const struct ft_request *request);

/* Tiles of a pair of batch and head, or of batch and heads packed together; such pairs; tiles of
 * all of them. */
double ft_tiles_of_a_pair(const struct ft_request *request, const struct ft_config *config);
double ft_pairs(const struct ft_request *request, const struct ft_config *config);
double ft_tile_count(const struct ft_request *request, const struct ft_config *config);

/* Q, K, V read and O, LSE written once: microseconds. */
double ft_compulsory_us(const struct ft_request *request, const struct ft_arch *arch);

/* For arithmetic where a GPU's row lacks a figure. */
double ft_or_default(double value, double otherwise);
double ft_cycles_per_us(const struct ft_arch *arch);

struct ft_prediction ft_model_wgmma(const struct ft_request *request, const struct ft_arch *arch,
                                    const struct ft_config *config, int spill_bytes);
struct ft_prediction ft_model_backward(const struct ft_request *request, const struct ft_arch *arch,
                                       const struct ft_config *config, int registers,
                                       int spill_bytes);

#endif
