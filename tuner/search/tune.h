/* tune.h: the search: candidates -> trials -> winner.
 * in -> out: session + request + effort -> trials in the store and a summary.
 *
 *   space -> rules -> model order -> compile (threads) -> verify -> screen -> finals -> rows
 */
#ifndef TUNER_TUNE_H
#define TUNER_TUNE_H

#include "generator/arch.h"
#include "generator/config.h"
#include "generator/request.h"
#include "runtime/fatune.h"
#include "tuner/search/tune_options.h"

/* Tunes on the session's GPU; if that is emulated, predicts as below. Candidates whose rows are in
 * the store are not run again, so a second call compiles and measures nothing. FT_E_INTERRUPTED:
 * stopped, all rows are kept. FT_E_NOT_FOUND: no candidate ran right. FT_E_DEVICE: a candidate took
 * the GPU's context with it; its row says which, and the next call passes it over. The summary is
 * filled in whatever is returned. */
int ft_tune(fatune_session *session, const struct ft_request *request,
            const struct ft_tune_options *options, struct ft_tune_summary *summary);

/* Compiles the candidates for a GPU that is not here, ranks them by the model from their compiled
 * registers, spills and shared memory, and stores them as FT_OUTCOME_PREDICTED. */
int ft_tune_predict(fatune_session *session, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_tune_options *options,
                    struct ft_tune_summary *summary);

#endif
