/* cli_tuned.h: what `fatune tune` reports of each request.
 * in -> out: ft_tune_summary -> a row of the table, an object of the document. */
#ifndef TUNER_CLI_TUNED_H
#define TUNER_CLI_TUNED_H

#include "tuner/cli_session.h"

struct cli_tuned {
  struct cli_table table;
  json_t *results;
};

/* measured false: the table's head says that times are predicted. */
void cli_tuned_begin(struct cli_tuned *tuned, bool measured);
void cli_tuned_add(struct cli_tuned *tuned, const struct ft_request *request, const char *text,
                   const struct ft_tune_summary *summary);
void cli_tuned_end(struct cli_tuned *tuned, struct cli *cli);

#endif
