/* by_model.c: a compiled candidate, timed by the model.
 * in -> out: compiled kernel's registers, spills -> predicted time, outcome `predicted`, which any
 * measurement outranks. */
#include "tuner/search/by_model.h"

#include "generator/status.h"
#include "tuner/model/model.h"
#include "tuner/search/trial_fill.h"

static int attempt_by_model(void *payload, int candidate, const struct ft_kernel *kernel,
                            const struct ft_incumbent *incumbent, struct ft_attempt *attempt) {
  const struct ft_predicted_for *const what = payload;
  (void)candidate, (void)incumbent;
  attempt->us = ft_model(what->request, what->arch, &attempt->trial.config, what->score,
                         kernel->registers, kernel->spill_bytes)
                    .us;
  attempt->trial.median_us = attempt->us;
  ft_trial_end(&attempt->trial, FT_OUTCOME_PREDICTED, "");
  return FT_OK;
}

struct ft_measuring ft_measuring_by_model(const struct ft_predicted_for *what) {
  return (struct ft_measuring){.payload = (void *)(uintptr_t)what, .attempt = attempt_by_model};
}
