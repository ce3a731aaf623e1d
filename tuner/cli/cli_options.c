/* cli_options.c: the command line of every command of `fatune`.
 * in -> out: argc, argv + what the command takes -> struct cli_options. */
#include "tuner/cli/cli_options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/cli/cli_request.h"
#include "tuner/cli/cli_shard.h"
#include "tuner/cli/cli_values.h"

enum {
  KEY_GPU = 0x300,
  KEY_DEVICE,
  KEY_CONFIG,
  KEY_EFFORT,
  KEY_BUDGET,
  KEY_SHARD,
  KEY_CLAIMS,
  KEY_IF_MISSING,
  KEY_AGAIN,
  KEY_SEED,
  KEY_ROWS,
  KEY_NO_LSE,
  KEY_COLD,
  KEY_FROM,
  KEY_DESCALES,
  KEY_ROTATE,
  KEY_DESCALE_ROWS,
  KEY_CAP,
  KEY_REPAIR,
  KEY_ALL,
  KEY_ALLOW_EMPTY,
  KEY_SIGN,
  KEY_PASSPHRASE_FILE,
  KEY_CACHE_DIR,
  KEY_JSON,
  KEY_COLOR
};

static const struct argp_option gpu_options[] = {
    {NULL, 0, NULL, 0, "GPU:", 2},
    {"gpu", KEY_GPU, "NAME", 0,
     "auto (default: the one in the machine), by name: a100, sm_90, or emulated on the CPU, where "
     "nothing is timed: emulator (an a100), emulator:h200",
     2},
    {0}};

static const struct argp_option device_options[] = {
    {"device", KEY_DEVICE, "N", 0, "CUDA ordinal of the GPU in the machine (default 0)", 2}, {0}};

static const struct argp_option config_options[] = {
    {"config", KEY_CONFIG, "TEXT", 0, "Use this config, not the best known", 3}, {0}};

static const struct argp_option search_options[] = {
    {NULL, 0, NULL, 0, "Search:", 4},
    {"effort", KEY_EFFORT, "LEVEL", 0, "quick, normal (default), exhaustive", 4},
    {"budget", KEY_BUDGET, "TIME", 0, "Stop after so long: 90, 15m, 2h", 4},
    {"jobs", 'j', "N", 0, "Compile threads (default: one per core)", 4},
    {"shard", KEY_SHARD, "K/N", 0,
     "Only the K-th of N shares: of the requests, where there are N or more, else of the "
     "candidates; auto: from the environment of Slurm, MPI, Kubernetes; auto/N where that does not "
     "tell N",
     4},
    {"claims", KEY_CLAIMS, "DIR", 0,
     "Requests are not shared out beforehand: each process that names this folder, a new one for "
     "each run, takes the next request that none has taken",
     4},
    {"if-missing", KEY_IF_MISSING, NULL, 0, "Skip requests that have a measured winner", 4},
    {"again", KEY_AGAIN, NULL, 0, "Try anew what was already tried under the same conditions", 4},
    {0}};

static const struct argp_option seed_options[] = {
    {"seed", KEY_SEED, "N", 0, "Seed of inputs, mask and dropout (default: fresh)", 5}, {0}};

static const struct argp_option rows_options[] = {
    {"rows", KEY_ROWS, "N", 0, "Rows checked per problem (default 256)", 5}, {0}};

static const struct argp_option lse_options[] = {
    {"no-lse", KEY_NO_LSE, NULL, 0, "Of a forward O alone is asked for, no LSE", 5}, {0}};

static const struct argp_option cold_options[] = {
    {"cold", KEY_COLD, NULL, 0, "Overwrite L2 before each run that is timed", 5}, {0}};

static const struct argp_option output_options[] = {
    {"output", 'o', "FILE", 0, "Write there; - is stdout", 6}, {0}};

static const struct argp_option quantise_options[] = {
    {"from", KEY_FROM, "FILE", 0, "Numbers of 16 bits, row after row; - is stdin", 3},
    {"descales", KEY_DESCALES, "FILE", 0, "Write the descales there; - is stdout", 3},
    {"rotate", KEY_ROTATE, "SEED", 0, "Rotate each row first, by this seed; Q and K want the same",
     3},
    {"descale-rows", KEY_DESCALE_ROWS, "N", 0,
     "A descale of each 64 or 128 rows (default: of all rows of a head)", 3},
    {0}};

static const struct argp_option cache_options[] = {
    {"cap", KEY_CAP, "BYTES", 0, "gc: keep at most so much: 512M, 2G", 7},
    {"repair", KEY_REPAIR, NULL, 0, "verify: mend what is damaged", 7},
    {"all", KEY_ALL, NULL, 0, "list: every trial, not the winners alone", 7},
    {"allow-empty", KEY_ALLOW_EMPTY, NULL, 0, "export: write a file even if nothing is known", 7},
    {"sign", KEY_SIGN, "KEYFILE", 0, "export: sign with this secret key of minisign", 7},
    {"passphrase-file", KEY_PASSPHRASE_FILE, "FILE", 0, "Of the key's passphrase, not asked then",
     7},
    {0}};

static const struct argp_option common_options[] = {
    {NULL, 0, NULL, 0, "Everywhere:", 9},
    {"cache-dir", KEY_CACHE_DIR, "DIR", 0, "Folder of both caches, for FATUNE_CACHE_DIR", 9},
    {"json", KEY_JSON, NULL, 0, "One JSON document on stdout", 9},
    {"quiet", 'q', NULL, 0, "Errors only on stderr", 9},
    {"verbose", 'v', NULL, 0, "More on stderr", 9},
    {"color", KEY_COLOR, "WHEN", 0, "auto (default), always, never; NO_COLOR is heeded", 9},
    {0}};

/* Which options come with which bit of cli_syntax.takes. */
static const struct {
  unsigned takes;
  const struct argp_option *options; /* NULL: those of a request */
} groups[] = {
    {CLI_REQUESTS, NULL},         {CLI_GPU, gpu_options},       {CLI_DEVICE, device_options},
    {CLI_CONFIG, config_options}, {CLI_SEARCH, search_options}, {CLI_SEED, seed_options},
    {CLI_ROWS, rows_options},     {CLI_OUTPUT, output_options}, {CLI_LSE, lse_options},
    {CLI_COLD, cold_options},     {CLI_CACHE, cache_options},   {CLI_QUANTISE, quantise_options}};

enum { GROUPS = sizeof groups / sizeof *groups };

/* What argp carries to the parsers. It knows only errno values, so our status is kept beside them.
 */
struct parsing {
  struct cli_options *options;
  const struct cli_syntax *syntax;
  int group_count;
  int status;
};

static int text_given(const char *option, const char *text, const char **value) {
  if (text[0] == '\0') return ft_fail(FT_E_ARGUMENT, "%s is ''; a value is needed", option);
  *value = text;
  return FT_OK;
}

static int int_given(const char *option, const char *text, int low, int high, int *value) {
  int64_t wide;
  FT_TRY(cli_integer(option, text, low, high, &wide));
  *value = (int)wide;
  return FT_OK;
}

/* "emulator" and "emulator:NAME" ask for an emulated GPU, too. */
static int gpu_given(struct cli_options *options, const char *text) {
  const size_t length = strlen(CLI_EMULATOR);
  FT_TRY(text_given("--gpu", text, &options->gpu));
  options->emulate = NULL;
  if (strncasecmp(text, CLI_EMULATOR, length) != 0) return FT_OK;
  if (text[length] == '\0') options->emulate = "a100";
  if (text[length] != ':') return FT_OK;
  options->emulate = text + length + 1;
  if (options->emulate[0] != '\0') return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "--gpu is '%s'; allowed: emulator, or emulator:NAME with a name "
                 "that `fatune gpus` lists",
                 text);
}

static int effort_given(struct cli_options *options, const char *text) {
  static const char *const names[] = {"quick", "normal", "exhaustive", NULL};
  int index;
  FT_TRY(cli_choice("--effort", text, names, &index));
  options->effort = (enum ft_effort)index;
  return FT_OK;
}

static int color_given(struct cli_options *options, const char *text) {
  static const char *const names[] = {"auto", "always", "never", NULL};
  int index;
  FT_TRY(cli_choice("--color", text, names, &index));
  options->color = (enum cli_color)index;
  return FT_OK;
}

static int seed_given(struct cli_options *options, const char *text) {
  int64_t seed;
  FT_TRY(cli_integer("--seed", text, 1, INT64_MAX, &seed));
  options->seed = (uint64_t)seed;
  return FT_OK;
}

static int rotate_given(struct cli_options *options, const char *text) {
  int64_t seed;
  FT_TRY(cli_integer("--rotate", text, 0, INT64_MAX, &seed));
  options->rotate = true;
  options->rotate_seed = (uint64_t)seed;
  return FT_OK;
}

static int descale_rows_given(struct cli_options *options, const char *text) {
  static const char *const names[] = {"64", "128", NULL};
  int index;
  FT_TRY(cli_choice("--descale-rows", text, names, &index));
  options->descale_rows = 64 << index;
  return FT_OK;
}

/* Sets one option that is not part of a request; FT_E_NOT_FOUND if key is none. */
static int set_option(struct cli_options *options, int key, const char *text) {
  switch (key) {
  case KEY_GPU: return gpu_given(options, text);
  case KEY_DEVICE:
    FT_TRY(int_given("--device", text, 0, 1023, &options->device));
    ++options->device;
    return FT_OK;
  case KEY_CONFIG: return text_given("--config", text, &options->config);
  case KEY_EFFORT: return effort_given(options, text);
  case KEY_BUDGET: return cli_duration("--budget", text, &options->budget_seconds);
  case 'j': return int_given("--jobs", text, 1, 1024, &options->jobs);
  case KEY_SHARD: return cli_shard("--shard", text, &options->shard, &options->shards);
  case KEY_CLAIMS: return text_given("--claims", text, &options->claims);
  case KEY_IF_MISSING: options->if_missing = true; return FT_OK;
  case KEY_AGAIN: options->again = true; return FT_OK;
  case KEY_SEED: return seed_given(options, text);
  case KEY_ROWS: return int_given("--rows", text, 1, 1000000, &options->rows);
  case KEY_NO_LSE: options->no_lse = true; return FT_OK;
  case KEY_COLD: options->cold = true; return FT_OK;
  case 'o': return text_given("--output", text, &options->output);
  case KEY_FROM: return text_given("--from", text, &options->from);
  case KEY_DESCALES: return text_given("--descales", text, &options->descales);
  case KEY_ROTATE: return rotate_given(options, text);
  case KEY_DESCALE_ROWS: return descale_rows_given(options, text);
  case KEY_CAP: return cli_bytes("--cap", text, &options->cap);
  case KEY_REPAIR: options->repair = true; return FT_OK;
  case KEY_ALL: options->all = true; return FT_OK;
  case KEY_ALLOW_EMPTY: options->allow_empty = true; return FT_OK;
  case KEY_SIGN: return text_given("--sign", text, &options->sign);
  case KEY_PASSPHRASE_FILE: return text_given("--passphrase-file", text, &options->passphrase_file);
  case KEY_CACHE_DIR: return text_given("--cache-dir", text, &options->cache_dir);
  case KEY_JSON: options->json = true; return FT_OK;
  case 'q': options->verbosity = -1; return FT_OK;
  case 'v': options->verbosity = 1; return FT_OK;
  case KEY_COLOR: return color_given(options, text);
  default: return FT_E_NOT_FOUND;
  }
}

static error_t argp_result(struct parsing *parsing, int status) {
  if (status == FT_OK) return 0;
  if (status == FT_E_NOT_FOUND) return ARGP_ERR_UNKNOWN;
  parsing->status = status;
  return EINVAL;
}

/* Parser of every group of options. */
static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct parsing *const parsing = state->input;
  if (parsing == NULL) return ARGP_ERR_UNKNOWN; /* argp asks before inputs are set */
  const int status = cli_request_option(parsing->options, key, text);
  if (status != FT_E_NOT_FOUND) return argp_result(parsing, status);
  return argp_result(parsing, set_option(parsing->options, key, text));
}

static bool has_request(const struct cli_options *options) {
  const struct cli_draft *const draft = &options->draft;
  return draft->by_option || draft->shapes != NULL || draft->words.length > 0 ||
         options->request_count > 0;
}

/* Checks that concern several options. */
static int check_options(const struct cli_options *options) {
  if (options->emulate == NULL || options->device == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "--device %d and --gpu %s exclude each other: an emulated GPU has no number",
                 options->device - 1, options->gpu);
}

/* Parser of the whole: positional arguments, and the inputs of the groups. */
static error_t parse_argument(int key, char *text, struct argp_state *state) {
  struct parsing *const parsing = state->input;
  struct cli_options *const options = parsing->options;
  const unsigned takes = parsing->syntax->takes;
  switch (key) {
  case ARGP_KEY_INIT:
    for (int i = 0; i < parsing->group_count; ++i) state->child_inputs[i] = parsing;
    return 0;
  case ARGP_KEY_ARG:
    if (takes & CLI_REQUESTS) return argp_result(parsing, cli_request_word(options, text));
    if (takes & CLI_CACHE) return ARGP_ERR_UNKNOWN; /* handed over whole, by ARGP_KEY_ARGS */
    return argp_result(parsing, ft_fail(FT_E_ARGUMENT, "unexpected argument '%s'", text));
  case ARGP_KEY_ARGS:
    options->words = state->argv + state->next;
    options->word_count = state->argc - state->next;
    return 0;
  case ARGP_KEY_END:
    if (check_options(options) != FT_OK) return argp_result(parsing, FT_E_ARGUMENT);
    if ((takes & CLI_REQUESTS) == 0) return 0;
    if (takes & CLI_SCORE_ALONE && options->score != NULL && !has_request(options)) return 0;
    return argp_result(parsing, cli_request_end(options, (takes & CLI_ONE_REQUEST) != 0));
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* argp itself ends the program at some errors. With --json there must be a document then, too, so a
 * handler prints it at exit. */
static struct { const char *name; /* of the command; NULL: not while argp reads */ } promised;

static void keep_promise(int code, void *unused) {
  (void)unused;
  if (promised.name == NULL || code != argp_err_exit_status) return;
  printf("{\n  \"schema\": \"%s/1\",\n  \"error\": {\"exit\": %d, \"status\": \"invalid "
         "argument\", \"message\": \"bad command line; stderr tells what is wrong\"}\n}\n",
         promised.name, code);
  fflush(stdout);
}

static void promise_json(const char *name, int argc, char **argv) {
  static char schema[64];
  static bool registered;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--json") != 0) continue;
    snprintf(schema, sizeof schema, "%s", name);
    for (char *at = schema; *at; ++at)
      if (*at == ' ') *at = '.';
    if (!registered) registered = on_exit(keep_promise, NULL) == 0;
    promised.name = schema;
  }
}

int cli_options_parse(struct cli_options *options, const struct cli_syntax *syntax, int argc,
                      char **argv, unsigned argp_flags) {
  struct argp parts[GROUPS + 1] = {{.options = common_options, .parser = parse_option}};
  struct argp_child children[GROUPS + 2] = {{.argp = &parts[0]}};
  int count = 1;
  for (int i = 0; i < GROUPS; ++i) {
    if ((syntax->takes & groups[i].takes) == 0) continue;
    parts[count] = (struct argp){.options = groups[i].options, .parser = parse_option};
    if (groups[i].takes == CLI_REQUESTS)
      parts[count].options =
          syntax->takes & CLI_QUANTISE ? cli_tensor_options() : cli_request_options();
    children[count].argp = &parts[count];
    ++count;
  }
  const struct argp whole = {.parser = parse_argument,
                             .args_doc = syntax->arguments,
                             .doc = syntax->doc,
                             .children = children};
  struct parsing parsing = {.options = options, .syntax = syntax, .group_count = count};
  char name[64], *const given_name = argv[0];
  snprintf(name, sizeof name, "%s", syntax->name);
  argv[0] = name; /* argp and getopt put it in front of their messages */
  promise_json(syntax->name, argc, argv);

  *options = (struct cli_options){.cap = -1, .effort = FT_EFFORT_NORMAL};
  cli_request_begin(options);
  const error_t error = argp_parse(&whole, argc, argv, argp_flags, NULL, &parsing);
  argv[0] = given_name;
  promised.name = NULL;
  if (parsing.status != FT_OK) return parsing.status;
  if (error == ENOMEM) return ft_fail(FT_E_MEMORY, "no memory for the command line");
  return error == 0 ? FT_OK : ft_fail(FT_E_ARGUMENT, "bad command line");
}

void cli_options_free(struct cli_options *options) {
  ft_text_free(&options->draft.words);
  ft_text_free(&options->damaged);
  free(options->requests);
  options->requests = NULL;
  options->request_count = 0;
}
