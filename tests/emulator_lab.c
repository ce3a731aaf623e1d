/* emulator_lab.c: sessions, runs and planted bugs for the tests of the emulated device.
 * in -> out: GPU, problem, config -> verdict; an edit -> folder of templates. */
#include "tests/emulator_lab.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/space.h"
#include "runtime/session.h"
#include "tests/fresh_seed.h"
#include "tests/slow_tests.h"
#include "tuner/search/measure.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_explain.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/problem_verify.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/shape.h"

#define assert_ok(expression)                                                                      \
  ck_assert_msg((expression) == FT_OK, "%s: %s", #expression, ft_detail())

uint64_t emulator_seed(void) {
  static uint64_t fresh; /* one for a test, which so is repeated by what it tells */
  const char *const given = getenv("FATUNE_TEST_SEED");
  if (given && *given) return strtoull(given, NULL, 0);
  if (fresh == 0) fresh = fresh_seed();
  return fresh;
}

uint64_t random_seed;

uint32_t random_word(void) {
  static uint64_t state;
  if (random_seed == 0) random_seed = state = emulator_seed();
  return (uint32_t)(ft_random_next(&state) >> 32);
}

int below(int limit) {
  return (int)(random_word() % (unsigned)limit);
}

uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void print_log(void *payload, const char *message) {
  (void)payload;
  fprintf(stderr, "fatune: %s\n", message);
}

fatune_session *emulator_open(const char *gpu, const char *templates) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session;
  options.emulate = gpu;
  options.memory_only = 1;
  options.template_dir = templates;
  options.log = print_log;
  assert_ok(fatune_session_open(&session, &options));
  assert_ok(ft_session_needs_device(session));
  return session;
}

/* ---- runs ---- */

char *emulator_request_text(const struct ft_request *request) {
  struct ft_text text = FT_TEXT_INIT;
  ft_request_print(request, &text);
  assert_ok(ft_text_status(&text));
  return text.data;
}

static int make_plan(fatune_plan **plan, fatune_session *session, const char *text,
                     const char *config) {
  fatune_request request = FATUNE_REQUEST_INIT;
  assert_ok(fatune_request_parse(&request, text));
  return config ? fatune_plan_make_with(plan, session, &request, config)
                : fatune_plan_make(plan, session, &request);
}

fatune_plan *emulator_plan(fatune_session *session, const char *request, const char *config) {
  fatune_plan *plan;
  assert_ok(make_plan(&plan, session, request, config));
  return plan;
}

static int run_plan(void *payload, const fatune_arguments *arguments) {
  return fatune_plan_run(payload, arguments, NULL);
}

/* The run's own failure is a finding, any other one of the lab. */
static void check(struct emulator_run *run, struct ft_problem *problem, fatune_plan *plan,
                  bool explain) {
  enum { ALL_ROWS = 1 << 20, THREADS = 1 };
  const struct ft_problem_run runner = {run_plan, plan, NULL, false};
  assert_ok(ft_problem_fit(problem, plan));
  run->status = ft_problem_check(problem, &runner, ALL_ROWS, THREADS, &run->comparison);
  if (!explain || run->status != FT_OK || run->comparison.error_ratio <= 1) return;
  if (ft_problem_explain(problem, run_plan, plan, &run->explanation) != FT_OK)
    ft_text_add(&run->explanation, "no explanation: %s\n", ft_detail());
}

static void run_of_plan(struct emulator_run *run, fatune_session *session,
                        const struct ft_problem_options *options, fatune_plan *plan, bool explain) {
  struct ft_problem_options kept = *options;
  struct ft_problem *problem;
  *run = (struct emulator_run){.explanation = FT_TEXT_INIT};
  kept.keep_host = true;
  assert_ok(ft_problem_make(&problem, session, &kept));
  assert_ok(ft_session_enter(session));
  check(run, problem, plan, explain);
  if (run->status != FT_OK) snprintf(run->fault, sizeof run->fault, "%s", ft_detail());
  ft_session_leave(session);
  ft_problem_free(problem);
}

void emulator_run_plan(struct emulator_run *run, fatune_session *session,
                       const struct ft_problem_options *options, fatune_plan *plan) {
  run_of_plan(run, session, options, plan, true);
}

static void run_of_config(struct emulator_run *run, fatune_session *session,
                          const struct ft_problem_options *options, const char *config,
                          bool explain) {
  char *const text = emulator_request_text(&options->request);
  fatune_plan *plan;
  *run = (struct emulator_run){.explanation = FT_TEXT_INIT};
  run->status = make_plan(&plan, session, text, config);
  if (run->status == FT_OK)
    run_of_plan(run, session, options, plan, explain);
  else
    snprintf(run->fault, sizeof run->fault, "%s", ft_detail());
  fatune_plan_free(plan);
  free(text);
}

void emulator_run(struct emulator_run *run, fatune_session *session,
                  const struct ft_problem_options *options, const char *config) {
  run_of_config(run, session, options, config, true);
}

void emulator_run_free(struct emulator_run *run) {
  ft_text_free(&run->explanation);
}

struct ft_problem_options emulator_options(const char *request, enum ft_layout layout,
                                           uint64_t seed) {
  struct ft_problem_options options = {.layout = layout, .seed = seed, .want_lse = true};
  ck_assert_msg(ft_request_parse(&options.request, request) == FT_OK, "%s", ft_detail());
  if (options.request.dropout) options.dropout = 0.25;
  return options;
}

void emulator_run_alone(struct emulator_run *run, const char *templates,
                        const struct ft_problem_options *options, const char *config) {
  fatune_session *const session = emulator_open("h200", templates);
  emulator_run(run, session, options, config);
  fatune_session_close(session);
}

void emulator_run_scored(struct emulator_run *run, const char *templates, const char *name,
                         const char *text, struct ft_problem_options options, const char *config) {
  fatune_session *const session = emulator_open("h200", templates);
  ck_assert_msg(fatune_score_add(&options.request.score, session, name, text) == FT_OK, "%s",
                fatune_detail());
  emulator_run(run, session, &options, config);
  fatune_session_close(session);
}

size_t emulator_choose(int i, size_t runs, size_t count) {
  const size_t first = (size_t)i * count / runs, end = ((size_t)i + 1) * count / runs;
  ck_assert_uint_lt(first, end);
  return first + emulator_seed() % (end - first);
}

int emulator_runs(size_t count) {
#if defined(__SANITIZE_ADDRESS__)
  enum { SHARE = 6 };
#else
  enum { SHARE = 3 };
#endif
  return (int)(tests_are_slow() ? count : (count + SHARE - 1) / SHARE);
}

void emulator_row_by_row(const char *request, enum ft_layout layout, double scale,
                         const char *config) {
  const uint64_t seed = emulator_seed();
  struct ft_problem_options options = emulator_options(request, layout, seed);
  options.scale = scale;
  struct emulator_run run;
  emulator_run_alone(&run, NULL, &options, config);
  ck_assert_msg(run.status == FT_OK && run.comparison.error_ratio <= 1,
                "FATUNE_TEST_SEED=%llu %s: %s", (unsigned long long)seed, request,
                run.status == FT_OK ? run.comparison.worst : run.fault);
  emulator_run_free(&run);
}

void emulator_expect_right(const char *name, const struct emulator_run *run) {
  const unsigned long long seed = emulator_seed();
  ck_assert_msg(run->status == FT_OK, "FATUNE_TEST_SEED=%llu %s: %s", seed, name, run->fault);
  ck_assert_msg(run->comparison.error_ratio <= 1, "FATUNE_TEST_SEED=%llu %s: %s\n%s", seed, name,
                run->comparison.worst, run->explanation.data ? run->explanation.data : "");
}

void emulator_expect_fault(const char *name, const struct emulator_run *run) {
  ck_assert_msg(run->status == FT_E_DEVICE, "%s: status %d, not caught: %s", name, run->status,
                run->status == FT_OK ? run->comparison.worst : run->fault);
}

void emulator_expect_wrong(const char *name, const struct emulator_run *run) {
  ck_assert_msg(run->status == FT_OK, "%s: %s", name, run->fault);
  ck_assert_msg(!(run->comparison.error_ratio <= 1), "%s: not caught", name);
}

void emulator_expect_caught(const char *name, const struct emulator_run *run, bool is_fault) {
  if (is_fault)
    emulator_expect_fault(name, run);
  else
    emulator_expect_wrong(name, run);
}

void emulator_expect_words(const char *name, const char *text, const char *const words[],
                           int count) {
  for (int i = 0; i < count && words[i]; i++)
    ck_assert_msg(text && strstr(text, words[i]), "%s: no \"%s\" in: %s", name, words[i], text);
}

char *emulator_random_config(fatune_session *session, const struct ft_request *request,
                             uint64_t seed) {
  struct ft_space space;
  struct ft_config config, chosen;
  struct ft_text text = FT_TEXT_INIT;
  uint64_t seen = 0;
  assert_ok(ft_space_open(&space, request, &session->device.arch));
  while (ft_space_next(&space, &config))
    if (ft_random_next(&seed) % ++seen == 0) chosen = config;
  ck_assert_uint_gt(seen, 0);
  ft_config_print(&chosen, &text);
  assert_ok(ft_text_status(&text));
  return text.data;
}

void emulator_random_config_is_right(const char *gpu, const struct ft_problem_options *options) {
  fatune_session *const session = emulator_open(gpu, NULL);
  char *const config = emulator_random_config(session, &options->request, emulator_seed());
  struct emulator_run run;
  emulator_run(&run, session, options, config);
  emulator_expect_right(config, &run);
  emulator_run_free(&run);
  free(config);
  fatune_session_close(session);
}

/* ---- planted bugs ---- */

static char *read_file(const char *folder, const char *file) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/%s", folder, file);
  FILE *const stream = fopen(path, "rb");
  ck_assert_msg(stream != NULL, "cannot read %s", path);
  ck_assert_int_eq(fseek(stream, 0, SEEK_END), 0);
  const size_t length = (size_t)ftell(stream);
  rewind(stream);
  char *const text = malloc(length + 1);
  ck_assert_ptr_nonnull(text);
  ck_assert_uint_eq(fread(text, 1, length, stream), length);
  text[length] = '\0';
  fclose(stream);
  return text;
}

static void write_file(const char *folder, const char *file, const char *text) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/%s", folder, file);
  FILE *const stream = fopen(path, "wb");
  ck_assert_msg(stream != NULL, "cannot write %s", path);
  ck_assert_int_ge(fputs(text, stream), 0);
  ck_assert_int_eq(fclose(stream), 0);
}

/* The folder `to` gets a link to each entry of `from`. */
static void link_entries(const char *from, const char *to) {
  DIR *const folder = opendir(from);
  ck_assert_msg(folder != NULL, "cannot read %s", from);
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char old[512], new[512];
    if (entry->d_name[0] == '.') continue;
    (void)snprintf(old, sizeof old, "%s/%s", from, entry->d_name);
    (void)snprintf(new, sizeof new, "%s/%s", to, entry->d_name);
    ck_assert_int_eq(symlink(old, new), 0);
  }
  closedir(folder);
}

/* A folder of links in place of a link to a folder. */
static void open_link(const char *path) {
  char from[512];
  const ssize_t length = readlink(path, from, sizeof from - 1);
  if (length < 0) return; /* it is a folder of links already */
  from[length] = '\0';
  ck_assert_int_eq(unlink(path), 0);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  link_entries(from, path);
}

void emulator_plant_more(const struct planted *planted, const char *file, const char *text) {
  char path[512];
  for (const char *end = strchr(file, '/'); end != NULL; end = strchr(end + 1, '/')) {
    (void)snprintf(path, sizeof path, "%s/%.*s", planted->folder, (int)(end - file), file);
    open_link(path);
  }
  (void)snprintf(path, sizeof path, "%s/%s", planted->folder, file);
  (void)unlink(path); /* what is written through a link would be written to templates/ */
  write_file(planted->folder, file, text);
}

struct planted emulator_plant_file(const char *file, const char *text) {
  struct planted planted = {"/tmp/fatune-planted-XXXXXX"};
  ck_assert_ptr_nonnull(mkdtemp(planted.folder));
  link_entries(FATUNE_SOURCE_DIR "/templates", planted.folder);
  emulator_plant_more(&planted, file, text);
  return planted;
}

static char *expect_piece(const char *text, const char *file, const char *piece, bool once) {
  char *const at = strstr(text, piece);
  ck_assert_msg(at != NULL, "templates/%s has no more \"%s\": the planted bug must be renewed",
                file, piece);
  ck_assert_msg(!once || strstr(at + 1, piece) == NULL, "templates/%s has \"%s\" more than once",
                file, piece);
  return at;
}

void emulator_expect_piece(const char *file, const char *piece, bool once) {
  char *const text = read_file(FATUNE_SOURCE_DIR "/templates", file);
  (void)expect_piece(text, file, piece, once);
  free(text);
}

struct planted emulator_plant(const char *file, const char *piece, const char *other) {
  char *const text = read_file(FATUNE_SOURCE_DIR "/templates", file);
  char *const at = expect_piece(text, file, piece, true);
  struct ft_text edited = FT_TEXT_INIT;
  ft_text_append(&edited, text, (size_t)(at - text));
  ft_text_add(&edited, "%s%s", other, at + strlen(piece));
  assert_ok(ft_text_status(&edited));
  const struct planted planted = emulator_plant_file(file, edited.data);
  ft_text_free(&edited);
  free(text);
  return planted;
}

static int remove_one(const char *path, const struct stat *file, int type, struct FTW *place) {
  (void)file, (void)type, (void)place;
  return remove(path);
}

void emulator_unplant(const struct planted *planted) {
  enum { OPEN_FOLDERS = 4 };
  ck_assert_int_eq(nftw(planted->folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS), 0);
}

void emulator_catch(const struct emulator_bug *bug, const struct ft_problem_options *options,
                    const char *config) {
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  struct emulator_run run;
  if (bug->words) setenv("FATUNE_EMULATOR_HOOKS", "1", 1); /* which see what ASan does not */
  emulator_run_alone(&run, planted.folder, options, bug->config ? bug->config : config);
  emulator_expect_caught(bug->name, &run, bug->words != NULL);
  if (bug->words) emulator_expect_words(bug->name, run.fault, &bug->words, 1);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}

bool emulator_sees(const struct planted *planted, const struct ft_problem_options *options,
                   const char *config, int problems) {
  struct ft_problem_options one = *options;
  fatune_session *const session =
      emulator_open("h200", planted->folder); /* one: it compiles once */
  bool seen = false;
  for (int n = 0; n < problems && !seen; n++, one.seed++) {
    struct emulator_run run;
    run_of_config(&run, session, &one, config, false); /* an explanation is many runs more */
    ck_assert_int_ne(run.status, FT_E_COMPILE);
    seen = !(run.status == FT_OK && run.comparison.error_ratio <= 1);
    emulator_run_free(&run);
  }
  fatune_session_close(session);
  return seen;
}

int emulator_line_of(const struct planted *planted, const char *file, const char *text) {
  char *const whole = read_file(planted->folder, file);
  const char *const found = strstr(whole, text);
  ck_assert_msg(found != NULL, "templates/%s has no more \"%s\"", file, text);
  int line = 1;
  for (const char *at = whole; at < found; at++) line += *at == '\n';
  free(whole);
  return line;
}
