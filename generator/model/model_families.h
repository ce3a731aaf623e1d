/* model_families.h: what a kernel family is to the model: one descriptor, in a file of its own.
 * in -> out: request + arch + config -> struct ft_prediction. model.c lists them; nothing else
 * names them one by one. */
#ifndef GENERATOR_MODEL_FAMILIES_H
#define GENERATOR_MODEL_FAMILIES_H

#include "generator/family.h"
#include "generator/model/prediction.h"

struct ft_family_model {
  const struct ft_family *family;
  bool persistent; /* its blocks stay on their multiprocessors and take tile after tile */
  struct ft_prediction (*predict)(const struct ft_modelled *of);
};

extern const struct ft_family_model ft_mma_forward_model;
extern const struct ft_family_model ft_wgmma_forward_model;
extern const struct ft_family_model ft_mma_backward_model;
extern const struct ft_family_model ft_wgmma_backward_model;
extern const struct ft_family_model ft_wgmma_backward_roles_model;

#endif
