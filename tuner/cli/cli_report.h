/* cli_report.h: what is known of requests as one page of pictures.
 * in -> out: requests + GPU -> HTML that loads nothing. */
#ifndef TUNER_CLI_REPORT_H
#define TUNER_CLI_REPORT_H

#include "tuner/cli/cli_session.h"

/* What `fatune explain` says of a request, with all its trials, predictions and the roofs of the
 * GPU; to be freed by json_decref. */
int cli_report_request(struct cli *cli, fatune_session *session, const struct ft_request *request,
                       json_t **document);

/* The page of such documents, which it takes. */
int cli_report_page(json_t *requests, struct ft_text *page);

#endif
