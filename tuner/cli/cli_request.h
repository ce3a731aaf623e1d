/* cli_request.h: requests from a command line.
 * in -> out: option values, words, texts, a file of texts -> validated requests in cli_options. */
#ifndef TUNER_CLI_REQUEST_H
#define TUNER_CLI_REQUEST_H

#include "tuner/cli/cli_options.h"

/* Keys of the request options, for argp. */
enum {
  CLI_KEY_PASS = 0x200,
  CLI_KEY_DTYPE,
  CLI_KEY_HEAD_DIM,
  CLI_KEY_HEADS,
  CLI_KEY_BATCH,
  CLI_KEY_SEQLEN,
  CLI_KEY_CAUSAL,
  CLI_KEY_DROPOUT,
  CLI_KEY_MASK,
  CLI_KEY_DETERMINISTIC,
  CLI_KEY_SHAPES
};

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
