/* cli_progress.h: how far a long command is.
 * in -> out: done, total, ETA -> one redrawn line with a bar on a terminal; else a line a minute,
 * and one at the end. */
#ifndef TUNER_CLI_PROGRESS_H
#define TUNER_CLI_PROGRESS_H

#include "tuner/cli/cli_output.h"

struct cli_progress {
  struct cli *cli;
  const char *label;    /* what is being done */
  double begin_seconds; /* by ft_seconds_now, as the next */
  double last_seconds;  /* when the last line was printed */
  int done, total;      /* as last told; total 0: nothing was */
  char note[48];
};

void cli_progress_begin(struct cli_progress *progress, struct cli *cli, const char *label);
/* eta_seconds < 0: unknown. note: "best 812.3 us" or "". */
void cli_progress_update(struct cli_progress *progress, int done, int total, double eta_seconds,
                         const char *note);
/* Wipes the line of a terminal; elsewhere prints the last one. */
void cli_progress_end(struct cli_progress *progress);

#endif
