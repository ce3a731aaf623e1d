/* test_cli_options.c: the command line of `fatune`, by its functions.
 * in -> out: argv -> requests and values, or a detail that names the option and the value. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "generator/close_word.h"
#include "generator/status.h"
#include "tests/suites.h"
#include "tuner/cli/cli_options.h"
#include "tuner/cli/cli_values.h"

enum { WORDS_MOST = 32 };

static const struct cli_syntax tune = {"fatune tune", "REQUEST...", "Tune.",
                                       CLI_REQUESTS | CLI_GPU | CLI_DEVICE | CLI_SEARCH | CLI_SEED};
static const struct cli_syntax one = {"fatune emit", "REQUEST", "Emit.",
                                      CLI_REQUESTS | CLI_ONE_REQUEST | CLI_GPU | CLI_CONFIG};
static const struct cli_syntax one_to_file = {"fatune emit", "REQUEST", "Emit.",
                                              CLI_REQUESTS | CLI_ONE_REQUEST | CLI_OUTPUT};
static const struct cli_syntax tensor = {"fatune quantise", "REQUEST", "Quantise.",
                                         CLI_REQUESTS | CLI_ONE_REQUEST | CLI_OUTPUT |
                                             CLI_QUANTISE};
static const struct cli_syntax cache = {"fatune cache", "ACTION", "Cache.", CLI_CACHE | CLI_OUTPUT};

/* line: words separated by '|', so that a word may hold blanks. */
static int parse(struct cli_options *options, const struct cli_syntax *syntax, const char *line) {
  static char copy[1024], name[] = "fatune";
  static char *words[WORDS_MOST + 1];
  int count = 1;
  char *rest = copy;
  snprintf(copy, sizeof copy, "%s", line);
  words[0] = name;
  while (line[0] != '\0' && rest != NULL && count < WORDS_MOST) words[count++] = strsep(&rest, "|");
  words[count] = NULL;
  return cli_options_parse(options, syntax, count, words, ARGP_NO_EXIT | ARGP_NO_ERRS);
}

static void check_requests(const char *line, const char *expected) {
  struct cli_options options;
  struct ft_text text = FT_TEXT_INIT;
  const int status = parse(&options, &tune, line);
  ck_assert_msg(status == FT_OK, "'%s': %s", line, ft_detail());
  for (int i = 0; i < options.request_count; ++i) {
    if (i > 0) ft_text_add(&text, "; ");
    ft_request_print(&options.requests[i], &text);
  }
  ck_assert_str_eq(text.data, expected);
  ft_text_free(&text);
  cli_options_free(&options);
}

static const struct {
  const char *line, *expected;
} good_requests[] = {
    {"--head-dim|128|--seqlen|4096", "forward bf16 d128 nq4096"},
    {"--pass=both|--dtype|fp16|--head-dim|192:128|--heads|32:8|--batch|2|--seqlen|100:200|--causal",
     "forward fp16 d192 dv128 hq32 hkv8 b2 nq100 nk200 causal; "
     "backward fp16 d192 dv128 hq32 hkv8 b2 nq100 nk200 causal"},
    {"--head-dim=64|--seqlen=8|--causal=top-left|--dropout=0.25|--mask=128x64@0.5",
     "forward bf16 d64 nq8 causal=top-left dropout mask=128x64@0.5"},
    {"--head-dim=64|--seqlen=8|--window=4,-1|--causal", "forward bf16 d64 nq8 causal window@4,-1"},
    {"--head-dim=64|--seqlen=8|--window|top-left@0,3", "forward bf16 d64 nq8 window=top-left@0,3"},
    {"--pass=backward|--deterministic|--head-dim=64|--seqlen=8",
     "backward bf16 d64 nq8 deterministic"},
    {"--pass=both|--deterministic|--head-dim=64|--seqlen=8",
     "forward bf16 d64 nq8; backward bf16 d64 nq8 deterministic"},
    {"forward|bf16|d128|nq64", "forward bf16 d128 nq64"},
    {"nq64|d128", "forward bf16 d128 nq64"},
    {"forward bf16 d128 nq64", "forward bf16 d128 nq64"},
    {"forward|d64|nq1|backward|d64|nq2|d32 nq3|nq4|d16",
     "forward bf16 d64 nq1; backward bf16 d64 nq2; forward bf16 d32 nq3; forward bf16 d16 nq4"},
    {"both d64 nq3", "forward bf16 d64 nq3; backward bf16 d64 nq3"},
    {"both d64 nq3 deterministic", "forward bf16 d64 nq3; backward bf16 d64 nq3 deterministic"},
    {"d64|--gpu|a100|nq3", "forward bf16 d64 nq3"},
    {"--|d64|nq3", "forward bf16 d64 nq3"},
};

START_TEST(requests_are_read) {
  check_requests(good_requests[_i].line, good_requests[_i].expected);
}
END_TEST

/* What must stand in the detail: the option and the value, or the word. */
static const struct {
  const struct cli_syntax *syntax;
  const char *line, *first, *second;
} bad_lines[] = {
    {&tune, "", "no request", "--head-dim"},
    {&tune, "--gpu|a100", "no request", ""},
    {&tune, "--head-dim|128", "--seqlen", "missing"},
    {&tune, "--seqlen|128", "--head-dim", "missing"},
    {&tune, "--head-dim|129|--seqlen|1", "--head-dim '129'", "multiples of 8"},
    {&tune, "--head-dim|128:7|--seqlen|1", "--head-dim '128:7'", "head_dim_v"},
    {&tune, "--head-dim|264|--seqlen|1", "--head-dim '264'", "256"},
    {&tune, "--head-dim||--seqlen|1", "--head-dim is ''", "allowed"},
    {&tune, "--heads|32:5", "--heads '32:5'", "multiples of heads_kv"},
    {&tune, "--heads|0", "--heads is '0'", "from 1"},
    {&tune, "--heads|8:", "--heads is '8:'", "N:M"},
    {&tune, "--heads|-8", "--heads is '-8'", "N:M"},
    {&tune, "--heads| 8", "--heads is ' 8'", "N:M"},
    {&tune, "--seqlen|0", "--seqlen is '0'", "from 1"},
    {&tune, "--seqlen|10:0", "--seqlen is '10:0'", "from 1"},
    {&tune, "--seqlen|2147483648", "--seqlen is '2147483648'", "2147483647"},
    {&tune, "--seqlen|99999999999999999999", "--seqlen is", "2147483647"},
    {&tune, "--batch|0", "--batch is '0'", "from 1"},
    {&tune, "--batch|1.5", "--batch is '1.5'", "integer"},
    {&tune, "--pass|sideways", "--pass is 'sideways'", "forward, backward, both"},
    {&tune, "--dtype|fp64", "--dtype is 'fp64'", "fp16, bf16"},
    {&tune, "--causal=middle", "--causal is 'middle'", "bottom-right, top-left"},
    {&tune, "--dropout|0", "--dropout is '0'", "to 1"},
    {&tune, "--dropout|1.5", "--dropout is '1.5'", "to 1"},
    {&tune, "--dropout|nan", "--dropout is 'nan'", "to 1"},
    {&tune, "--dropout|0x1p-1", "--dropout is '0x1p-1'", "to 1"},
    {&tune, "--mask|128", "--mask is '128'", "ROWSxCOLS"},
    {&tune, "--mask|24x128", "--mask is '24x128'", "16"},
    {&tune, "--mask|128x128@2", "--mask is '128x128@2'", "density"},
    {&tune, "--mask|128x128 d4", "--mask is '128x128 d4'", "ROWSxCOLS"},
    {&tune, "--window|5", "--window is '5'", "LEFT,RIGHT"},
    {&tune, "--window|-3,0", "--window is '-3,0'", "window_left is -3"},
    {&tune, "--window=middle@1,1", "--window is 'middle@1,1'", "top-left"},
    {&tune, "--deterministic|--head-dim|64|--seqlen|1", "deterministic", "backward"},
    {&tune, "d64|nq1|--causal", "exclude each other", "a request text"},
    {&tune, "--shapes|x|--head-dim|64", "exclude each other", "--shapes"},
    {&tune, "--shapes|x|--shapes|y", "--shapes is given twice, as 'x' and 'y'", "once"},
    {&tune, "d64|nq1|backward", "'backward' begins a request", "the head dim is missing"},
    {&tune, "d64 nq1 pages=5", "pages is 5", "powers of two"},
    {&tune, "d64|nq1|--shard|x", "--shard is 'x'", "auto/N"},
    {&tune, "d64|nq1|d64|nq1", "'d64'", "repeats"},
    {&tune, "d65|nq1", "head_dim is 65", "multiples of 8"},
    {&tune, "d64|nq0", "seqlen_q is 0", "1 to"},
    {&tune, "forward bf16 d64 nq1 hq3 hkv2", "heads_q is 3", "heads_kv"},
    {&tune, "", "no request", ""},
    {&tune, "d64|", "''", "allowed"},
    {&tune, "d64|nq1|--effort|extreme", "--effort is 'extreme'", "quick, normal, exhaustive"},
    {&tune, "d64|nq1|--budget|0", "--budget is '0'", "above 0"},
    {&tune, "d64|nq1|--budget|5d", "--budget is '5d'", "2h"},
    {&tune, "d64|nq1|--jobs|0", "--jobs is '0'", "from 1"},
    {&tune, "d64|nq1|--shard|0/4", "--shard is '0/4'", "K/N"},
    {&tune, "d64|nq1|--shard|5/4", "--shard is '5/4'", "K/N"},
    {&tune, "d64|nq1|--shard|1", "--shard is '1'", "K/N"},
    {&tune, "d64|nq1|--gpu=", "--gpu is ''", "value"},
    {&tune, "d64|nq1|--gpu|emulator:", "--gpu is 'emulator:'", "emulator:NAME"},
    {&tune, "d64|nq1|--gpu|emulator|--device|0", "--device 0", "exclude each other"},
    {&tune, "d64|nq1|--device|3|--gpu|emulator:h200", "--gpu emulator:h200", "no number"},
    {&tune, "d64|nq1|--device|x", "--device is 'x'", "from 0"},
    {&tune, "d64|nq1|--seed|0", "--seed is '0'", "from 1"},
    {&tune, "d64|nq1|--color|pink", "--color is 'pink'", "auto, always, never"},
    {&tune, "--shapes|/nowhere/shapes", "--shapes '/nowhere/shapes'", "No such file"},
    {&one, "d64 nq1|d64 nq2", "2 requests", "one, or both passes of one"},
    {&one, "forward d64 nq1|backward d64 nq1", "2 requests", "one, or both passes of one"},
    {&one, "both d64 nq1|d64 nq2", "3 requests", "one, or both passes of one"},
    {&one_to_file, "both d64 nq1|-o|x", "--output 'x' with both passes", "one of them"},
    {&tensor, "d64|nq1|--descale-rows|96", "--descale-rows is '96'", "64, 128"},
    {&tensor, "d64|nq1|--rotate|-1", "--rotate is '-1'", "from 0"},
    {&tensor, "d64|nq1|--rotate=", "--rotate is ''", "from 0"},
    {&tensor, "d64|nq1|--from=", "--from is ''", "value"},
    {&tensor, "d64|nq1|--descales=", "--descales is ''", "value"},
    {&tensor, "--head-dim|64", "--seqlen is missing", ""},
    {&cache, "gc|--cap|5X", "--cap is '5X'", "512M"},
    {&cache, "gc|--cap|99999999T", "--cap is '99999999T'", "bytes"},
};

START_TEST(bad_lines_are_named) {
  struct cli_options options;
  const int status = parse(&options, bad_lines[_i].syntax, bad_lines[_i].line);
  ck_assert_msg(status != FT_OK, "'%s' was taken", bad_lines[_i].line);
  ck_assert_msg(strstr(ft_detail(), bad_lines[_i].first) != NULL &&
                    strstr(ft_detail(), bad_lines[_i].second) != NULL,
                "'%s': \"%s\" lacks \"%s\" or \"%s\"", bad_lines[_i].line, ft_detail(),
                bad_lines[_i].first, bad_lines[_i].second);
  cli_options_free(&options);
}
END_TEST

/* What argp itself refuses; an option of another command is unknown, not ignored. */
START_TEST(unknown_options_are_refused) {
  static const char *const lines[] = {"d64|nq1|--frobnicate", "d64|nq1|--repair",
                                      "d64|nq1|--config|x",   "d64|nq1|--rows|3",
                                      "d64|nq1|-o|f",         "d64|nq1|--gpu"};
  struct cli_options options;
  ck_assert_msg(parse(&options, &tune, lines[_i]) != FT_OK, "'%s' was taken", lines[_i]);
  cli_options_free(&options);
}
END_TEST

/* quantise has the request options that describe a tensor. Its own --descales names a file. */
START_TEST(a_tensor_has_few_options) {
  static const char *const lines[] = {"--causal", "--pass|backward",  "--shapes|x",
                                      "--sinks",  "--out-dtype|fp32", "--score|alibi"};
  struct cli_options options;
  char line[128];
  for (size_t i = 0; i < sizeof lines / sizeof *lines; ++i) {
    snprintf(line, sizeof line, "--head-dim|64|--seqlen|1|%s", lines[i]);
    ck_assert_msg(parse(&options, &tensor, line) != FT_OK, "'%s' was taken", line);
    cli_options_free(&options);
  }
  ck_assert_int_eq(parse(&options, &tensor,
                         "--dtype|fp16|--head-dim|64|--heads|8|--batch|2|--seqlen|9|--from|-|"
                         "--descales|d|-o|f|--rotate|0|--descale-rows|128"),
                   FT_OK);
  ck_assert_int_eq(options.requests[0].dtype, FT_FP16);
  ck_assert_int_eq(options.requests[0].seqlen_q, 9);
  ck_assert_str_eq(options.from, "-");
  ck_assert_str_eq(options.descales, "d");
  ck_assert_str_eq(options.output, "f");
  ck_assert(options.rotate && options.rotate_seed == 0);
  ck_assert_int_eq(options.descale_rows, 128);
  cli_options_free(&options);
  ck_assert_int_eq(parse(&options, &tensor, "d64|nq1"), FT_OK);
  ck_assert(!options.rotate && options.descale_rows == 0 && options.from == NULL);
  cli_options_free(&options);
}
END_TEST

START_TEST(values_arrive) {
  struct cli_options options;
  ck_assert_int_eq(parse(&options, &tune,
                         "d64|nq1|--gpu|a100|--device|2|--effort|exhaustive|--budget|1.5m|-j|3|"
                         "--shard|2/8|--if-missing|--again|--seed|77|--cache-dir|/x|--json|-q|"
                         "--color|never"),
                   FT_OK);
  ck_assert_str_eq(options.gpu, "a100");
  ck_assert_int_eq(options.device, 3); /* 1 + ordinal */
  ck_assert_int_eq(options.effort, FT_EFFORT_EXHAUSTIVE);
  ck_assert_double_eq(options.budget_seconds, 90);
  ck_assert_int_eq(options.jobs, 3);
  ck_assert_int_eq(options.shard, 1);
  ck_assert_int_eq(options.shards, 8);
  ck_assert(options.if_missing && options.again && options.json);
  ck_assert_uint_eq(options.seed, 77);
  ck_assert_str_eq(options.cache_dir, "/x");
  ck_assert_int_eq(options.verbosity, -1);
  ck_assert_int_eq(options.color, CLI_COLOR_NEVER);
  cli_options_free(&options);
}
END_TEST

START_TEST(defaults_are_unset) {
  struct cli_options options;
  ck_assert_int_eq(parse(&options, &tune, "d64|nq1"), FT_OK);
  ck_assert_ptr_null(options.gpu);
  ck_assert_ptr_null(options.config);
  ck_assert_int_eq(options.effort, FT_EFFORT_NORMAL);
  ck_assert_int_eq(options.shards, 0);
  ck_assert_int_eq(options.cap, -1);
  ck_assert(!options.json && !options.again && options.budget_seconds == 0);
  cli_options_free(&options);
}
END_TEST

static const struct {
  const char *gpu, *emulated;
} gpus[] = {
    {"emulator", "a100"},
    {"emulator:h200", "h200"},
    {"Emulator:sm_90", "sm_90"},
    {"emulator:auto", "auto"},
    {"a100", NULL},
    {"auto", NULL},
    {"emulators", NULL}, /* a name like another, and of no GPU */
};

START_TEST(an_emulated_gpu_is_named) {
  struct cli_options options;
  char line[64];
  snprintf(line, sizeof line, "d64|nq1|--gpu|%s", gpus[_i].gpu);
  ck_assert_int_eq(parse(&options, &tune, line), FT_OK);
  ck_assert_str_eq(options.gpu, gpus[_i].gpu);
  ck_assert_pstr_eq(options.emulate, gpus[_i].emulated);
  cli_options_free(&options);

  /* The last one counts. */
  snprintf(line, sizeof line, "--gpu|emulator:t4|d64|nq1|--gpu=%s", gpus[_i].gpu);
  ck_assert_int_eq(parse(&options, &tune, line), FT_OK);
  ck_assert_pstr_eq(options.emulate, gpus[_i].emulated);
  cli_options_free(&options);
}
END_TEST

START_TEST(cache_words_arrive) {
  struct cli_options options;
  ck_assert_int_eq(parse(&options, &cache, "merge|--cap|3K|a file|-o|out|b"), FT_OK);
  ck_assert_int_eq(options.word_count, 3);
  ck_assert_str_eq(options.words[0], "merge");
  ck_assert_str_eq(options.words[1], "a file");
  ck_assert_str_eq(options.words[2], "b");
  ck_assert_int_eq(options.cap, 3072);
  ck_assert_str_eq(options.output, "out");
  cli_options_free(&options);
}
END_TEST

#define SHAPES_PATH "/tmp/fatune_shapes_XXXXXX"

/* A tilde is a byte that is 0. path: as SHAPES_PATH at first. */
static void write_shapes(char *path, const char *text) {
  const int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  const size_t length = strlen(text);
  char *const content = strdup(text);
  ck_assert_ptr_nonnull(content);
  for (size_t i = 0; i < length; i++)
    if (content[i] == '~') content[i] = '\0';
  ck_assert_int_eq(write(descriptor, content, length), (ssize_t)length);
  close(descriptor);
  free(content);
}

static void with_shapes(const char *text, const char *expected, const char *detail) {
  char path[] = SHAPES_PATH, line[64];
  write_shapes(path, text);
  snprintf(line, sizeof line, "--shapes|%s", path);
  if (expected != NULL) {
    check_requests(line, expected);
  } else {
    struct cli_options options;
    ck_assert_int_eq(parse(&options, &tune, line), FT_E_ARGUMENT);
    ck_assert_msg(detail != NULL && strstr(ft_detail(), detail) != NULL, "\"%s\" lacks \"%s\"",
                  ft_detail(), detail);
    cli_options_free(&options);
  }
  unlink(path);
}

START_TEST(shapes_are_read) {
  with_shapes("# two shapes\n\nd64 nq1 # first\r\n  both d32 nq2\nd16 nq3",
              "forward bf16 d64 nq1; forward bf16 d32 nq2; backward bf16 d32 nq2; "
              "forward bf16 d16 nq3",
              NULL);
  with_shapes("d64 nq1\n# x\nd64 nq0\n", "forward bf16 d64 nq1", NULL);
  with_shapes("# x\nd64 nq0\nd128 nonsense\n", NULL, "line 2");
  with_shapes("# x\nd64 nq0\nd128 nonsense\n", NULL, "; no line is a request");
  with_shapes("d64 nq1\n~~~~\nd64 nq2~ causal\nd64 nq4",
              "forward bf16 d64 nq1; forward bf16 d64 nq4", NULL);
  with_shapes("# x\n~~~~\n", NULL, "line 2: a byte is 0");
  with_shapes("# nothing\n\n", NULL, "no request");
  with_shapes("\xEF\xBB\xBF"
              "d64 nq1\n",
              "forward bf16 d64 nq1", NULL);
  with_shapes("", NULL, "no request");
}
END_TEST

/* Lines add up: d64 took 90 us, d32 80 us, d16 none that is known and so by its operations; what
 * was written by hand comes after. What is damaged is named, and the rest done. */
START_TEST(recorded_shapes_are_ordered_by_time) {
  with_shapes("d128 nq9\n# Requests recorded by fatune\nruns=10 us=50 forward bf16 d32 nq1\n"
              "runs=2 us=90.0 d64 nq1\nruns=6 d32 nq1\nruns=1 d16 nq1\nd256 nq8\n",
              "forward bf16 d64 nq1; forward bf16 d32 nq1; forward bf16 d16 nq1; "
              "forward bf16 d128 nq9; forward bf16 d256 nq8",
              NULL);
  static const char *const damaged[] = {
      "runs=x us=1 d64 nq1",  "runs=-1 d64 nq1",    "runs=1 us=nan d64 nq1",
      "runs=1 us= d64 nq1",   "runs=1 us=5",        "runs=1",
      "runs=1 us=5 d64 nq",   "us=5 d64 nq1",       "runs=1 us=5 both d64",
      "runs=1 us=5 \x01\xff", "runs=1e400 d64 nq1", "runs=1 runs=2 d64 nq1"};
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    char content[256];
    snprintf(content, sizeof content, "runs=3 us=7 d64 nq1\n%s\nruns=3 us=9 d32 nq1\n", damaged[i]);
    with_shapes(content, "forward bf16 d32 nq1; forward bf16 d64 nq1", NULL);
    with_shapes(damaged[i], NULL, "line 1");
  }
}
END_TEST

/* Recorded lines are read before those written by hand are, and told of in the order of all. */
START_TEST(damaged_lines_are_told_in_their_order) {
  char path[] = SHAPES_PATH, line[64];
  struct cli_options options;
  write_shapes(path, "d64 nq0\nruns=x us=1 d64 nq1\nd64 nq1\nnonsense\nruns=1 us=nan d64 nq1\n");
  snprintf(line, sizeof line, "--shapes|%s", path);
  ck_assert_int_eq(parse(&options, &tune, line), FT_OK);
  const char *at = options.damaged.data;
  static const char *const lines[] = {"line 1: ", "line 2: ", "line 4: ", "line 5: "};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    at = strstr(at, lines[i]);
    ck_assert_msg(at != NULL, "'%s' is not behind the others: %s", lines[i], options.damaged.data);
  }
  cli_options_free(&options);
  unlink(path);
}
END_TEST

/* Numbers written by this test come back; what is beside the range does not. */
START_TEST(random_numbers_come_back) {
  const unsigned seed = (unsigned)time(NULL) ^ (unsigned)getpid();
  srand(seed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t first = 1 + rand() % 1000000, second = 1 + rand() % 1000000;
    int64_t a = 0, b = 0;
    char text[64];
    snprintf(text, sizeof text, "%lld:%lld", (long long)first, (long long)second);
    ck_assert_msg(cli_pair("--x", text, 1000000, &a, &b) == FT_OK && a == first && b == second,
                  "seed %u: '%s'", seed, text);
    snprintf(text, sizeof text, "%lld", (long long)first);
    ck_assert_msg(cli_integer("--x", text, 1, 1000000, &a) == FT_OK && a == first, "seed %u", seed);
    ck_assert_msg(cli_integer("--x", text, first + 1, 2000000, &a) != FT_OK, "seed %u", seed);
    ck_assert_msg(cli_integer("--x", text, 0, first - 1, &a) != FT_OK, "seed %u", seed);
    snprintf(text, sizeof text, "%lldM", (long long)first);
    ck_assert_msg(cli_bytes("--x", text, &a) == FT_OK && a == first << 20, "seed %u", seed);
  }
}
END_TEST

START_TEST(close_words_are_known) {
  ck_assert_int_eq(ft_edit_distance("tune", "tune"), 0);
  ck_assert_int_eq(ft_edit_distance("tnue", "tune"), 1);
  ck_assert_int_eq(ft_edit_distance("H20", "h200"), 1);
  ck_assert_int_eq(ft_edit_distance("", "abc"), 3);
  ck_assert_int_eq(ft_edit_distance("kitten", "sitting"), 3);
  ck_assert(ft_is_close("emti", "emit"));
  ck_assert(ft_is_close("explian", "explain"));
  ck_assert(!ft_is_close("banana", "tune"));
  ck_assert(!ft_is_close("", "emit"));
}
END_TEST

#define COUNT(array) (int)(sizeof array / sizeof *array)

Suite *make_cli_options_suite(void) {
  Suite *const suite = suite_create("cli_options");
  TCase *const tests = tcase_create("cli_options");
  tcase_add_loop_test(tests, requests_are_read, 0, COUNT(good_requests));
  tcase_add_loop_test(tests, bad_lines_are_named, 0, COUNT(bad_lines));
  tcase_add_loop_test(tests, unknown_options_are_refused, 0, 6);
  tcase_add_test(tests, a_tensor_has_few_options);
  tcase_add_test(tests, values_arrive);
  tcase_add_test(tests, defaults_are_unset);
  tcase_add_loop_test(tests, an_emulated_gpu_is_named, 0, COUNT(gpus));
  tcase_add_test(tests, cache_words_arrive);
  tcase_add_test(tests, shapes_are_read);
  tcase_add_test(tests, recorded_shapes_are_ordered_by_time);
  tcase_add_test(tests, damaged_lines_are_told_in_their_order);
  tcase_add_test(tests, random_numbers_come_back);
  tcase_add_test(tests, close_words_are_known);
  suite_add_tcase(suite, tests);
  return suite;
}
