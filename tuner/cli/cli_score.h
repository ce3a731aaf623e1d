/* cli_score.h: the score function of a command line.
 * in -> out: --score -> struct ft_score, the number that requests have. */
#ifndef TUNER_CLI_SCORE_H
#define TUNER_CLI_SCORE_H

#include "generator/score/score.h"
#include "runtime/fatune.h"

/* A built-in one by its name, or a file: what has a '/' in it or ends in ".lua". */
int cli_score_read(const char *given, const fatune_session *session, struct ft_score *score);
/* The same for the session's kernels. */
int cli_score_add(const char *given, fatune_session *session, int64_t *number);

#endif
