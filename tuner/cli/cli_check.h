/* cli_check.h: a kernel run on problems and held against float64, for `verify` and `tune`.
 * in -> out: plan + request -> a run for every layout and for awkward lengths -> verdicts.
 * One plan serves all of them, as it serves every length of its users. */
#ifndef TUNER_CLI_CHECK_H
#define TUNER_CLI_CHECK_H

#include "tuner/cli/cli_plan.h"
#include "tuner/cli/cli_table.h"

struct cli_check {
  struct cli *cli;
  fatune_session *session;
  fatune_plan *plan;
  struct ft_request request; /* what problems are made of */
  uint64_t seed;
  bool brief; /* true: every length in one layout, the layouts in turn; false: every length in all
                 of them */

  struct cli_table table;
  json_t *cases;              /* handed on by cli_check_json */
  int count, done, wrong;     /* problems */
  bool faulted;               /* the last problem's run ended in a fault */
  struct ft_text explanation; /* what is wrong with the first wrong one */
};

/* Sets up the results; cli, session, plan, request, seed and brief are given. */
void cli_check_begin(struct cli_check *check);

/* FT_OK when all problems are right, else FT_E_WRONG, also for a kernel that faults on the
 * emulator. The context must be current. */
int cli_check_run(struct cli_check *check);

/* "cases", "wrong", "seed", "explanation" into the object (NULL: nowhere). */
void cli_check_json(struct cli_check *check, json_t *object);
/* The table, and the explanation below it. */
void cli_check_print(struct cli_check *check);

void cli_check_end(struct cli_check *check);

#endif
