/* cli_emulated_run.h: the end of `fatune tune` for an emulated GPU.
 * in -> out: winner of a search -> its run on the CPU, on small problems, checked; which of the
 * steps of the whole were emulated. */
#ifndef TUNER_CLI_EMULATED_RUN_H
#define TUNER_CLI_EMULATED_RUN_H

#include "tuner/cli/cli_tuned.h"

/* FT_E_WRONG when the winner's results are wrong or it faults. result->json stays NULL if nothing
 * was run. */
int cli_emulated_run(struct cli *cli, fatune_session *session, const struct ft_request *request,
                     const struct ft_config *winner, struct cli_tuned_run *result);

/* One line and one member of the document for each step, all of which were done. */
void cli_emulated_steps(struct cli *cli, fatune_session *session, const struct cli_target *target);

#endif
