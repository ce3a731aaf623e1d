/* cli_tuned.h: what `fatune tune` reports of each request.
 * in -> out: ft_tune_summary -> a row of the table, an object of the document. */
#ifndef TUNER_CLI_TUNED_H
#define TUNER_CLI_TUNED_H

#include "tuner/cli/cli_session.h"
#include "tuner/cli/cli_table.h"

struct cli_tuned {
  struct cli_table table;
  json_t *results;
};

/* What the emulator made of a winner. */
struct cli_tuned_run {
  char verdict[48]; /* "right (5 problems)" */
  json_t *json;     /* handed on; NULL: not run */
};

/* Unless the GPU is here, the table's head says that times are predicted. */
void cli_tuned_begin(struct cli_tuned *tuned, const struct cli_target *target);
/* emulated: NULL unless the GPU is. */
void cli_tuned_add(struct cli_tuned *tuned, const struct ft_request *request, const char *text,
                   const struct ft_tune_summary *summary, const struct cli_tuned_run *emulated);
void cli_tuned_end(struct cli_tuned *tuned, struct cli *cli);
/* Instead, where another process reports. */
void cli_tuned_drop(struct cli_tuned *tuned);

#endif
