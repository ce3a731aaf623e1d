/* cli_cache_files.h: the actions of `fatune cache` that move rows between files.
 * in -> out: files of others -> rows here; winners here -> a file to ship. */
#ifndef TUNER_CLI_CACHE_FILES_H
#define TUNER_CLI_CACHE_FILES_H

#include "tuner/cli/cli_session.h"

/* words: the files. All return a status. */
int cli_cache_merge(struct cli *cli, fatune_session *session, char **words, int count);
int cli_cache_import(struct cli *cli, fatune_session *session, char **words, int count);
/* To --output, for --gpu. */
int cli_cache_export(struct cli *cli, fatune_session *session, char **words, int count);

#endif
