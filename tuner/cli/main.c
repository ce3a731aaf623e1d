/* main.c: the program `fatune`: finds the command, reads its options, runs it.
 * in -> out: argv -> exit code (enum cli_exit in cli_session.h). */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/close_word.h"
#include "generator/request_fields.h"
#include "generator/status.h"
#include "tuner/cli/cli_values.h"
#include "tuner/cli/command.h"

static const struct command *const commands[] = {
    &command_tune,   &command_emit,     &command_compile, &command_bench,
    &command_verify, &command_quantise, &command_explain, &command_report,
    &command_cache,  &command_gpus,     &command_doctor};

enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command *find_command(const char *name) {
  for (int i = 0; i < COMMANDS; ++i) {
    if (strcmp(commands[i]->name, name) == 0) return commands[i];
  }
  return NULL;
}

static void print_version(FILE *stream, struct argp_state *state) {
  (void)state;
  fprintf(stream, "fatune %s\n", fatune_version());
}

static void print_help(FILE *stream) {
  fputs("Usage: fatune [COMMAND] [OPTION...] [ARGUMENT...]\n"
        "Compiles and tunes exact attention kernels.\n\n Commands:\n",
        stream);
  for (int i = 0; i < COMMANDS; ++i) {
    fprintf(stream, "  %-9s %s%s\n", commands[i]->name, commands[i]->summary,
            i == 0 ? " (default)" : "");
  }
  fputs("\n Examples:\n"
        "  fatune --gpu auto \"forward bf16 d128 hq32 hkv8 nq4096 causal\"\n"
        "  fatune emit --gpu a100 --head-dim 128 --heads 32:8 --seqlen 4096 --causal\n"
        "  fatune explain forward fp16 d64 hq16 b4 nq2048 --gpu h100\n"
        "  fatune verify forward bf16 d128 nq4096 causal --gpu emulator   (no GPU needed)\n\n"
        "Every command has --help. Exit codes: 0 ok, 1 failure, 2 usage, 3 no suitable GPU or "
        "driver,\n"
        "4 compile failed, 5 no valid candidate, 6 cache unusable or damaged, 7 verification "
        "failed,\n"
        "8 time budget used up with a partial result, 9 a damaged cache was mended, 130 and 143\n"
        "stopped by a signal.\n",
        stream);
}

/* Options that every command has may stand before its name, and so may --gpu. Words taken: 0, 1, 2.
 */
static int leading_option(const char *word) {
  static const char *const with_value[] = {"--cache-dir", "--color", "--gpu", "--device"};
  static const char *const alone[] = {"--json", "--quiet", "--verbose", "-q", "-v"};
  for (size_t i = 0; i < sizeof alone / sizeof *alone; ++i) {
    if (strcmp(word, alone[i]) == 0) return 1;
  }
  for (size_t i = 0; i < sizeof with_value / sizeof *with_value; ++i) {
    const size_t length = strlen(with_value[i]);
    if (strncmp(word, with_value[i], length) != 0) continue;
    if (word[length] == '=') return 1;
    if (word[length] == '\0') return 2;
  }
  return 0;
}

/* Words of a request hold a digit, a blank or '=', or are known by name; no command does or is. */
static bool is_request_word(const char *word) {
  return strcmp(word, "both") == 0 || ft_request_find_word(word) >= 0 ||
         strpbrk(word, "0123456789 =") != NULL || word[0] == '\0';
}

static int unknown_command(const char *word) {
  const char *closest = NULL;
  int least = 1000;
  for (int i = 0; i < COMMANDS; ++i) {
    const int distance = ft_edit_distance(word, commands[i]->name);
    const bool begins = strncmp(word, commands[i]->name, strlen(word)) == 0;
    if (distance >= least || (!begins && !ft_is_close(word, commands[i]->name))) continue;
    least = distance;
    closest = commands[i]->name;
  }
  fprintf(stderr, "fatune: no command '%s'", word);
  if (closest != NULL) fprintf(stderr, "; did you mean '%s'?", closest);
  fputs("\nTry `fatune --help' for the commands.\n", stderr);
  return CLI_EXIT_USAGE;
}

/* A command that takes one request may have got both passes of it. Then it runs once for each pass:
 * it prints one result after the other, and the document has an array of both. */
static int run_passes(struct cli *cli, const struct command *command) {
  struct ft_request *const requests = cli->options.requests;
  const int count = cli->options.request_count;
  if ((command->takes & CLI_ONE_REQUEST) == 0 || count < 2) return command->run(cli);
  json_t *const document = cli->json, *const passes = document ? json_array() : NULL;
  int code = CLI_EXIT_OK;
  cli->options.request_count = 1;
  for (int pass = 0; pass < count; ++pass) {
    if (pass > 0) cli_print(cli, "\n");
    cli->options.requests = requests + pass;
    cli->json = document ? json_object() : NULL;
    const int one = command->run(cli);
    if (code == CLI_EXIT_OK) code = one;
    if (document) cli_json_append(passes, cli->json);
  }
  cli->json = document;
  cli->options.requests = requests;
  cli->options.request_count = count;
  cli_json(cli, "passes", passes);
  return code;
}

/* Warns of each line of --shapes that could not be read. The others are done all the same, and the
 * exit code is that of bad usage. */
static void tell_damaged(struct cli *cli) {
  json_t *const list = json_array();
  char *rest = cli->options.damaged.data;
  for (char *line = rest ? strsep(&rest, "\n") : NULL; line && *line; line = strsep(&rest, "\n")) {
    cli_warning(cli, "%s; it is passed over", line);
    cli_json_append(list, cli_json_text(line));
  }
  if (json_array_size(list) > 0)
    cli_json(cli, "damaged_lines", list);
  else
    json_decref(list);
}

static int run_command(const struct command *command, int argc, char **argv) {
  char name[32], doc[2048];
  snprintf(name, sizeof name, "fatune %s", command->name);
  snprintf(doc, sizeof doc, "%s.%s%s", command->summary, command->details == NULL ? "" : "\v",
           command->details == NULL ? "" : command->details);
  const struct cli_syntax syntax = {name, command->arguments, doc, command->takes};
  struct cli cli = {.command = command->name};
  int code;
  const int status = cli_options_parse(&cli.options, &syntax, argc, argv, 0);
  cli_output_begin(&cli);
  if (status == FT_OK) {
    tell_damaged(&cli);
    code = run_passes(&cli, command);
    if (code == CLI_EXIT_OK && cli.options.damaged.length > 0) code = CLI_EXIT_USAGE;
  } else {
    code = cli_fail(&cli, status);
    if (code == CLI_EXIT_USAGE) fprintf(stderr, "Try `%s --help' for more information.\n", name);
  }
  cli_output_end(&cli);
  cli_options_free(&cli.options);
  return code;
}

/* `fatune [options] [command] ...` -> the command with its name taken out of argv. */
static int dispatch(int argc, char **argv) {
  int at = 1;
  while (at < argc && leading_option(argv[at]) > 0) at += leading_option(argv[at]);
  const char *const word = at < argc ? argv[at] : NULL;
  if (argc == 1) {
    print_help(stderr);
    return CLI_EXIT_USAGE;
  }
  if (word == NULL) return run_command(&command_tune, argc, argv);

  if (strcmp(word, "help") == 0) {
    const struct command *const about = at + 1 < argc ? find_command(argv[at + 1]) : NULL;
    char help[] = "--help", *arguments[] = {argv[0], help, NULL};
    if (about != NULL) return run_command(about, 2, arguments);
    if (at + 1 < argc) return unknown_command(argv[at + 1]);
  }
  if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-?") == 0 ||
      strcmp(word, "-h") == 0) {
    print_help(stdout);
    return CLI_EXIT_OK;
  }
  const struct command *const command = find_command(word);
  if (command == NULL) {
    if (word[0] != '-' && !is_request_word(word)) return unknown_command(word);
    return run_command(&command_tune, argc, argv);
  }
  memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof *argv); /* argv[argc] is NULL */
  return run_command(command, argc - 1, argv);
}

/* With descriptor 0, 1 or 2 closed, the next file opened, perhaps a database, would get its number
 * and then be printed into. A stand-in of the wrong direction makes such a write fail instead. */
static void hold_standard_descriptors(void) {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    if (open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY) != descriptor) _exit(1);
  }
}

/* What was printed has to arrive: a full disk is a failure, a reader that has gone is not. The
 * errno of an earlier failed write is lost by now, so the pipe itself is asked. */
static int finish_stdout(int code) {
  struct pollfd reader = {.fd = STDOUT_FILENO};
  const bool failed = ferror(stdout) != 0;
  errno = 0;
  if (fflush(stdout) == 0 && !failed) return code;
  const int why = errno;
  if (why == EPIPE || (poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR))) return code;
  fprintf(stderr, "fatune: stdout: %s\n", why != 0 ? strerror(why) : "a write failed");
  return code == CLI_EXIT_OK ? CLI_EXIT_FAILURE : code;
}

/* Where argp ends the program, after --help and --version. */
static void finish_at_exit(int code, void *nothing) {
  (void)nothing;
  if (code == CLI_EXIT_OK && finish_stdout(code) != CLI_EXIT_OK) _exit(CLI_EXIT_FAILURE);
}

int main(int argc, char **argv) {
  hold_standard_descriptors();
  signal(SIGPIPE, SIG_IGN); /* a tuning run goes on when the reader of its output has gone */
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a failed write, as on a full disk */
  (void)on_exit(finish_at_exit, NULL);
  argp_program_version_hook = print_version;
  argp_err_exit_status = CLI_EXIT_USAGE;
  if (argc < 1) return CLI_EXIT_USAGE;
  return finish_stdout(dispatch(argc, argv));
}
