/* by_model.c: a compiled candidate, timed by the model.
 * in -> out: compiled kernel's registers, spills -> predicted time, outcome `predicted`, which any
 * measurement outranks. */
#include "tuner/search/by_model.h"

#include "generator/model/choice.h"
#include "generator/status.h"
#include "tuner/search/trial_fill.h"

static int attempt_by_model(void *payload, int candidate, const struct ft_kernel *kernel,
                            const struct ft_incumbent *incumbent, struct ft_attempt *attempt) {
  struct ft_ranker *const ranker = payload;
  const struct ft_config *const config = &attempt->trial.config;
  (void)candidate, (void)incumbent;
  attempt->us = ft_choice_margin(ranker, config) *
                ft_ranker_compiled_us(ranker, config, kernel->registers, kernel->spill_bytes);
  attempt->trial.median_us = attempt->us;
  ft_trial_end(&attempt->trial, FT_OUTCOME_PREDICTED, "");
  return FT_OK;
}

struct ft_measuring ft_measuring_by_model(struct ft_ranker *ranker) {
  return (struct ft_measuring){.payload = ranker, .attempt = attempt_by_model};
}
