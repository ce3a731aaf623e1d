/* cli_score.h: the score function of a command line.
 * in -> out: --score -> struct ft_score; score -> its expression, derivatives and kernel text. */
#ifndef TUNER_CLI_SCORE_H
#define TUNER_CLI_SCORE_H

#include "generator/score/score.h"
#include "tuner/cli/cli_session.h"

/* A built-in one by its name, or a file: what has a '/' in it or ends in ".lua". */
int cli_score_read(const char *given, const fatune_session *session, struct ft_score *score);

/* Adds the derivatives' nodes to the score. */
int cli_explain_score(struct cli *cli, struct ft_score *score);

#endif
