/* model.c: the one list of the families' models.
 * in -> out: a config's family -> its model's prediction. */
#include "generator/model/model.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "generator/model/model_families.h"

/* A decode of 256 keys takes 4.5 us on an H200, an empty kernel in a graph 0.6. */
static const double LAUNCH_US = 2;

static const struct ft_family_model *const models[] = {
    &ft_mma_forward_model,    &ft_wgmma_forward_model,        &ft_mma_backward_model,
    &ft_wgmma_backward_model, &ft_wgmma_backward_roles_model,
};

static const struct ft_family_model *model_of(const struct ft_family *family) {
  for (int n = 0; n < FT_COUNT(models); n++) {
    if (models[n]->family == family) return models[n];
  }
  return NULL;
}

struct ft_prediction ft_model_by_hand(const struct ft_modelled *of) {
  const struct ft_family_model *const model = model_of(of->config->family);
  assert(model != NULL); /* a test asks every family */
  struct ft_prediction prediction = model->predict(of);
  prediction.us += LAUNCH_US;
  return prediction;
}

struct ft_prediction ft_model(const struct ft_request *request, const struct ft_arch *arch,
                              const struct ft_config *config, const struct ft_score_costs *score,
                              int registers, int spill_bytes) {
  const struct ft_request alike = ft_request_alike(request);
  static const struct ft_score_costs none;
  const struct ft_modelled of = {.request = &alike,
                                 .arch = arch,
                                 .config = config,
                                 .score = score ? *score : none,
                                 .registers = registers,
                                 .spill_bytes = spill_bytes};
  return ft_model_by_hand(&of);
}

static int most_searched(const struct ft_knob *knob) {
  int most = 0;
  for (int n = 0; n < knob->searched_count; n++)
    if (knob->searched[n] > most) most = knob->searched[n];
  return most;
}

int ft_model_persistent_rows(const struct ft_request *request, const struct ft_arch *arch) {
  int most = 0;
  for (int n = 0; n < FT_COUNT(models); n++) {
    const struct ft_family *const family = models[n]->family;
    if (!models[n]->persistent || !ft_family_serves(family, request, arch)) continue;
    const int rows = most_searched(&family->knobs[FT_KNOB_BLOCK_M]);
    if (rows > most) most = rows;
  }
  return most;
}
