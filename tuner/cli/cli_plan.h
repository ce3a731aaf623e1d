/* cli_plan.h: what `bench`, `verify` and `tune` share: a plan, and problems to run it on.
 * in -> out: struct ft_request + options -> fatune_plan; problem -> one run. */
#ifndef TUNER_CLI_PLAN_H
#define TUNER_CLI_PLAN_H

#include "tuner/cli/cli_session.h"

/* Makes a plan with this config, given as text; NULL: with the best one known. */
int cli_plan_make(fatune_session *session, const struct ft_request *request, const char *config,
                  fatune_plan **plan);

/* The seed of --seed, else one from the clock. --verbose prints it, so that a run can be repeated.
 */
uint64_t cli_seed(struct cli *cli);

#endif
