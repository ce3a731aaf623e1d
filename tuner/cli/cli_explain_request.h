/* cli_explain_request.h: which config a request gets here, and why.
 * in -> out: request + GPU -> text and JSON. */
#ifndef TUNER_CLI_EXPLAIN_REQUEST_H
#define TUNER_CLI_EXPLAIN_REQUEST_H

#include "tuner/cli/cli_session.h"

int cli_explain_request(struct cli *cli, fatune_session *session, const struct ft_request *request);

#endif
