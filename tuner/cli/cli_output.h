/* cli_output.h: what `fatune` says: data on stdout, messages and progress on stderr.
 * in -> out: messages, tables, JSON values -> terminal, pipe or file.
 * With --json a command's data is one document, printed at the end; without, text as it comes. */
#ifndef TUNER_CLI_OUTPUT_H
#define TUNER_CLI_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "generator/text.h"
#include "tuner/cli/cli_options.h"

/* What every command works with. */
struct cli {
  const char *command; /* "tune" */
  struct cli_options options;
  json_t *json; /* the document; NULL without --json */
  bool color_out, color_err;
  bool live;         /* stderr is a terminal that may be redrawn */
  bool line_pending; /* a progress line is unfinished */
  int code;          /* exit code of a command that did what it was asked for */
};

void cli_output_begin(struct cli *cli);
/* Prints the document, if there is one, and frees it. */
void cli_output_end(struct cli *cli);

/* -- messages, on stderr -------------------------------------------------------------------- */

void cli_error(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_warning(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Unless --quiet. */
void cli_note(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* With --verbose. */
void cli_detail(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* -- text, on stdout; nothing with --json --------------------------------------------------- */

enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_GOOD, CLI_BAD, CLI_FAINT };

void cli_print(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "name           value" of a description. */
void cli_field(struct cli *cli, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void cli_styled(struct cli *cli, enum cli_style style, const char *text);

/* -- JSON ------------------------------------------------------------------------------------ */

/* Sets document[key], taking the value; without --json the value is dropped. */
void cli_json(struct cli *cli, const char *key, json_t *value);
void cli_json_set(json_t *object, const char *key, json_t *value);
void cli_json_append(json_t *list, json_t *value);

/* The whole text, "" where nothing was added; without memory for it the program ends. */
const char *cli_whole(const struct ft_text *text);

/* Ends the program: without memory for all of an output, none of it can be relied on. */
void cli_no_memory(void) __attribute__((noreturn));
/* A string whatever its bytes (paths need not be UTF-8); NULL gives null. */
json_t *cli_json_text(const char *text);
/* A number, null when it is not finite. */
json_t *cli_json_real(double value);

#endif
