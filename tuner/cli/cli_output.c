/* cli_output.c: messages, descriptions and the JSON document of `fatune`.
 * in -> out: messages, values -> stderr, stdout. */
#include "tuner/cli/cli_output.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIELD_WIDTH = 14, CLI_FAILURE = 1 };

static bool has_value(const char *variable) {
  const char *const value = getenv(variable);
  return value != NULL && value[0] != '\0';
}

static bool can_redraw(void) {
  const char *const terminal = getenv("TERM");
  return terminal != NULL && strcmp(terminal, "dumb") != 0 && terminal[0] != '\0';
}

static bool wants_color(enum cli_color choice, int descriptor) {
  if (choice != CLI_COLOR_AUTO) return choice == CLI_COLOR_ALWAYS;
  return !has_value("NO_COLOR") && can_redraw() && isatty(descriptor);
}

static const char *style_code(enum cli_style style) {
  switch (style) {
  case CLI_PLAIN: break;
  case CLI_BOLD: return "\033[1m";
  case CLI_GOOD: return "\033[32m";
  case CLI_BAD: return "\033[31m";
  case CLI_FAINT: return "\033[2m";
  }
  return "";
}

void cli_output_begin(struct cli *cli) {
  const struct cli_options *const options = &cli->options;
  cli->color_out = !options->json && wants_color(options->color, STDOUT_FILENO);
  cli->color_err = wants_color(options->color, STDERR_FILENO);
  cli->live = isatty(STDERR_FILENO) && can_redraw() && !has_value("CI");
  if (!options->json) return;
  char schema[64];
  snprintf(schema, sizeof schema, "fatune.%s/1", cli->command);
  cli->json = json_object();
  if (cli->json == NULL) cli_no_memory();
  cli_json(cli, "schema", json_string(schema));
}

void cli_output_end(struct cli *cli) {
  if (cli->line_pending) fputs("\r\033[K", stderr);
  cli->line_pending = false;
  if (cli->json == NULL) return;
  /* A failed write shows in ferror(stdout), which main looks at. */
  if (json_dumpf(cli->json, stdout, JSON_INDENT(2)) == 0)
    putchar('\n');
  else if (!ferror(stdout))
    cli_no_memory();
  json_decref(cli->json);
  cli->json = NULL;
}

/* A message may quote a damaged file: its bytes are to steer no terminal. */
static void tame(char *message) {
  for (char *at = message; *at != '\0'; at++)
    if (((unsigned char)*at < ' ' && *at != '\n' && *at != '\t') || *at == 127) *at = '?';
}

/* One write per message, so that lines of several threads do not mix. */
static void say(struct cli *cli, const char *kind, const char *format, va_list arguments) {
  char *message = NULL;
  if (vasprintf(&message, format, arguments) < 0) return;
  tame(message);
  fprintf(stderr, "%sfatune %s: %s%s%s%s\n", cli->line_pending ? "\r\033[K" : "", cli->command,
          cli->color_err && kind[0] != '\0' ? "\033[1m" : "", kind,
          cli->color_err && kind[0] != '\0' ? "\033[0m" : "", message);
  cli->line_pending = false;
  free(message);
}

#define SAY(kind)                                                                                  \
  do {                                                                                             \
    va_list arguments;                                                                             \
    va_start(arguments, format);                                                                   \
    say(cli, kind, format, arguments);                                                             \
    va_end(arguments);                                                                             \
  } while (0)

void cli_error(struct cli *cli, const char *format, ...) {
  SAY("");
}

void cli_warning(struct cli *cli, const char *format, ...) {
  if (cli->options.verbosity >= 0) SAY("warning: ");
}

void cli_note(struct cli *cli, const char *format, ...) {
  if (cli->options.verbosity >= 0) SAY("");
}

void cli_detail(struct cli *cli, const char *format, ...) {
  if (cli->options.verbosity > 0) SAY("");
}

void cli_print(struct cli *cli, const char *format, ...) {
  if (cli->options.json) return;
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
}

void cli_field(struct cli *cli, const char *name, const char *format, ...) {
  if (cli->options.json) return;
  cli_styled(cli, CLI_BOLD, name);
  const int gap = FIELD_WIDTH - (int)strlen(name);
  printf("%*s", gap > 1 ? gap : 1, "");
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  putchar('\n');
}

void cli_styled(struct cli *cli, enum cli_style style, const char *text) {
  if (cli->options.json) return;
  const bool colored = cli->color_out && style != CLI_PLAIN;
  printf("%s%s%s", colored ? style_code(style) : "", text, colored ? "\033[0m" : "");
}

void cli_json(struct cli *cli, const char *key, json_t *value) {
  if (cli->json == NULL) {
    json_decref(value);
    return;
  }
  cli_json_set(cli->json, key, value);
}

void cli_json_set(json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value) != 0) cli_no_memory();
}

void cli_json_append(json_t *list, json_t *value) {
  if (json_array_append_new(list, value) != 0) cli_no_memory();
}

const char *cli_whole(const struct ft_text *text) {
  if (text->failed) cli_no_memory();
  return text->data != NULL ? text->data : "";
}

void cli_no_memory(void) {
  static const char message[] = "fatune: no memory\n";
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0) _exit(CLI_FAILURE);
  _exit(CLI_FAILURE);
}

json_t *cli_json_text(const char *text) {
  if (text == NULL) return json_null();
  json_t *value = json_string(text);
  if (value != NULL) return value;
  char *const plain = strdup(text); /* not UTF-8: what is not ASCII becomes '?' */
  if (plain == NULL) cli_no_memory();
  for (char *c = plain; *c != '\0'; ++c) {
    if ((unsigned char)*c >= 0x80) *c = '?';
  }
  value = json_string(plain);
  free(plain);
  return value;
}

json_t *cli_json_real(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}
