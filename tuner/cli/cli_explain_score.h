/* cli_explain_score.h: what `fatune explain` tells of a score function.
 * in -> out: score -> text and JSON: expression, derivatives, kernel text. */
#ifndef TUNER_CLI_EXPLAIN_SCORE_H
#define TUNER_CLI_EXPLAIN_SCORE_H

#include "generator/score/score.h"
#include "tuner/cli/cli_output.h"

/* Adds the derivatives' nodes to the score. */
/* number: which requests name it by, as score=NUMBER in hexadecimal. */
int cli_explain_score(struct cli *cli, struct ft_score *score, int64_t number);

#endif
