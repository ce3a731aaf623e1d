/* cli_request.h: requests from a command line.
 * in -> out: option values, words, texts, a file of texts -> validated requests in cli_options. */
#ifndef TUNER_CLI_REQUEST_H
#define TUNER_CLI_REQUEST_H

#include <argp.h>

#include "tuner/cli/cli_given.h"

/* The options that make a request, for argp: those of the fields of request.def, and --shapes. */
const struct argp_option *cli_request_options(void);
/* Those of them that say what one tensor is. */
const struct argp_option *cli_tensor_options(void);

void cli_request_begin(struct cli_options *options);

/* One request option; FT_E_NOT_FOUND (without detail) when key is none. */
int cli_request_option(struct cli_options *options, int key, const char *value);

/* One positional argument: a whole text when it has blanks in it, else a word of one. A word that
 * names a pass begins the next request. */
int cli_request_word(struct cli_options *options, const char *word);

/* After the last argument: what was begun becomes requests; at least one, or exactly one, which may
 * be both passes of one. */
int cli_request_end(struct cli_options *options, bool exactly_one);

#endif
