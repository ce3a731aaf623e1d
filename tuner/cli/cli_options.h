/* cli_options.h: the command line of every command of `fatune`.
 * in -> out: argc, argv + what the command takes -> struct cli_options, requests parsed and
 * validated. Help, usage and unknown options are argp's; values are read by cli_values. */
#ifndef TUNER_CLI_OPTIONS_H
#define TUNER_CLI_OPTIONS_H

#include "tuner/cli/cli_given.h"

struct cli_syntax {
  const char *name;      /* "fatune tune": stands in front of messages */
  const char *arguments; /* "REQUEST..." */
  const char *doc;       /* argp's: before '\v' above the options, after it below */
  unsigned takes;        /* enum cli_takes */
};

/* FT_E_ARGUMENT with a detail; what argp itself finds (unknown option, missing value, --help) it
 * prints and exits, unless argp_flags has ARGP_NO_EXIT. argv[0] is replaced by the syntax' name.
 * options is to be freed in any case. */
int cli_options_parse(struct cli_options *options, const struct cli_syntax *syntax, int argc,
                      char **argv, unsigned argp_flags);
void cli_options_free(struct cli_options *options);

#endif
