/* cli_claims.h: requests that several processes share out as each becomes free.
 * in -> out: a folder that all these processes name, a request's text -> whether this process is
 * the one to tune it. */
#ifndef TUNER_CLI_CLAIMS_H
#define TUNER_CLI_CLAIMS_H

#include <stdbool.h>

struct cli_claims;

/* Makes the folder if there is none. A claim stands as long as its file does, also where its
 * process is gone: the folder is of one run. Workers that are forked behind this claim for the same
 * process. */
int cli_claims_open(struct cli_claims **claims, const char *folder);
/* *ours: no other process has claimed the request, now or before. */
int cli_claims_take(const struct cli_claims *claims, const char *request, bool *ours);
void cli_claims_close(struct cli_claims *claims); /* NULL: nothing */

#endif
