/* command.h: the commands of `fatune`, one file each; main.c has the table.
 * in -> out: a parsed command line -> data on stdout, an exit code. */
#ifndef TUNER_COMMAND_H
#define TUNER_COMMAND_H

#include "tuner/cli/cli_session.h"

struct command {
  const char *name;
  const char *summary;         /* one line, for `fatune --help` */
  const char *arguments;       /* of the usage line */
  const char *details;         /* of its own --help, below the options; may be NULL */
  unsigned takes;              /* enum cli_takes */
  int (*run)(struct cli *cli); /* returns an exit code (enum cli_exit) */
};

extern const struct command command_tune;
extern const struct command command_emit;
extern const struct command command_compile;
extern const struct command command_bench;
extern const struct command command_verify;
extern const struct command command_quantise;
extern const struct command command_explain;
extern const struct command command_report;
extern const struct command command_cache;
extern const struct command command_gpus;
extern const struct command command_doctor;

#endif
