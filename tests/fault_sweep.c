/* fault_sweep.c: a line's sweep. in -> out: fault_sweep.h. The line is one program, which is served
 * (served_program.h), and so is `cache verify`, which looks at the store after each run. */
#include "tests/fault_sweep.h"

#include <dirent.h>

#include "generator/clock.h"
#include "tests/run_program.h"
#include "tests/served_program.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tests/swept_places.h"

enum { LINE = 512, SAVED = 4 }; /* tuning.db, kernels.db, theirs.db, sm_80.fatune */
enum { SHORT_ROUNDS = 2, SHORT_SECONDS = 20 };

static char faulty[4096 + 8], calling[4096 + 8];
static char says[96], fakes[96]; /* files: how many calls there were; likewise of fake libraries */
static int64_t trials;
static struct served_program served, verifier;

enum source { MEMORY, FILES, DATABASE, DRIVER, NVRTC, SOURCES };

/* What fails; first those that tell their places, in the order of sources. Whoever is busy is
 * waited for, so not for ever. */
static const struct kind {
  const char *name; /* of an order */
  enum source source;
  bool only_once;
} kinds[] = {{"memory", MEMORY, false}, {"files", FILES, false},     {"database", DATABASE, false},
             {"busy", DATABASE, true},  {"broken", DATABASE, false}, {"cu*", DRIVER, false},
             {"nvrtc*", NVRTC, false}};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* One sweep: its line as it is run, and what a run without failures says. */
struct sweep {
  const struct fault_line *line;
  char words[LINE];
  char *right;
  long counts[SOURCES]; /* calls of a run without failures */
  struct {
    long *calls, count;
  } places[SOURCES]; /* of the calls of a source those that are to fail; NULL: each */
  struct dice dice;
  double begin; /* in seconds */
};

/* ---- the folder ---- */

static void shell(const char *format, ...) {
  char line[2 * LINE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  ck_assert_msg(system(line) == 0, "%s", line);
}

/* The emulator's compiler, which keeps what it made of a kernel: each run of a sweep wants the same
 * one, and takes seconds. */
static void keep_compiled(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/kept/g++", folder);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fprintf(file,
          "#!/bin/sh\n"
          "case \"$*\" in *kernel.cc*) ;; *) exec g++ \"$@\" ;; esac\n"
          "kept='%s/kept/'$(cat ./*.* | sha256sum | cut -c 1-32).so\n"
          "if [ ! -e \"$kept\" ]; then\n"
          "  g++ \"$@\" || exit\n"
          "  cp kernel.so \"$kept.$$\" && mv \"$kept.$$\" \"$kept\"\n"
          "fi\n"
          "exec cp \"$kept\" kernel.so\n",
          folder);
  ck_assert_int_eq(fclose(file), 0);
  ck_assert_int_eq(chmod(path, 0700), 0);
  setenv("FATUNE_CXX", path, 1);
}

static void use_fake_gpu(void) {
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  setenv("FATUNE_FAKE_MS", "1000", 1); /* else a measurement is 100 000 calls */
}

void fault_sweep_begin(bool on_gpu) {
  char line[LINE];
  begin_program_test();
  snprintf(faulty, sizeof faulty, "%s_faulty", program);
  snprintf(calling, sizeof calling, "%s_calls", program);
  snprintf(says, sizeof says, "%s/says", folder);
  snprintf(fakes, sizeof fakes, "%s/fakes", folder);
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  expect("tune d64 nq512 --gpu a100 --effort quick --shard 1/7 -q", 0);
  snprintf(line, sizeof line, "cache export --gpu a100 -o %s/sm_80.fatune", folder);
  expect(line, 0);
  shell("cd %s && cp tuning.db theirs.db && mkdir saved kept && cp *.db *.fatune saved && "
        "echo d64 nq128 >kept/shapes && seq 1000 1199 | head -c 512 >kept/tensor",
        folder);
  snprintf(line, sizeof line, "%s/tuning.db", folder);
  trials = number_of(line, "SELECT count(*) FROM trials");
  ck_assert_int_gt(trials, 0);
  keep_compiled();
  if (on_gpu) use_fake_gpu();
}

void fault_sweep_end(void) {
  static const char *const set[] = {"FATUNE_CXX",     "FATUNE_LIBNVRTC",  "FATUNE_LIBCUDA",
                                    "FATUNE_LIBNVML", "FATUNE_CACHE_DIR", "FATUNE_FAKE_MS"};
  for (size_t i = 0; i < sizeof set / sizeof *set; i++) unsetenv(set[i]);
  end_program_test();
}

static bool is_same_file(const char *a, const char *b) {
  char of_a[4096], of_b[4096];
  FILE *const file_a = fopen(a, "r"), *const file_b = fopen(b, "r");
  bool same = file_a && file_b;
  size_t read = sizeof of_a;
  while (same && read == sizeof of_a) {
    read = fread(of_a, 1, sizeof of_a, file_a);
    same = fread(of_b, 1, sizeof of_b, file_b) == read && memcmp(of_a, of_b, read) == 0;
  }
  if (file_a) fclose(file_a);
  if (file_b) fclose(file_b);
  return same;
}

/* What each run may leave in the folder, and no other program looks at. */
static bool is_aside(const char *name) {
  static const char *const aside[] = {".", "..", "saved", "kept", "says", "fakes", "out", "err"};
  for (size_t i = 0; i < sizeof aside / sizeof *aside; i++)
    if (strcmp(name, aside[i]) == 0) return true;
  return false;
}

/* All that lies in the folder, and in `saved`, is the same. */
static bool is_unchanged(void) {
  DIR *const files = opendir(folder);
  ck_assert_ptr_nonnull(files);
  int same = 0;
  bool other = false;
  for (const struct dirent *file; !other && (file = readdir(files)) != NULL;) {
    char path[512], saved[512];
    if (is_aside(file->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
    snprintf(saved, sizeof saved, "%s/saved/%s", folder, file->d_name);
    other = !is_same_file(path, saved);
    same += !other;
  }
  closedir(files);
  return !other && same == SAVED;
}

static void restore(void) {
  if (is_unchanged()) return;
  shell("cd %s && for f in * .[!.]*; do case $f in saved|kept|says|fakes|out|err) ;; *) rm -rf "
        "\"$f\" ;; esac; done && cp saved/* .",
        folder);
}

/* ---- runs ---- */

static void begin_serving(struct sweep *sweep) {
  char command[3 * LINE + sizeof faulty], with[LINE] = "";
  const struct fault_line *const line = sweep->line;
  if (line->with) snprintf(with, sizeof with, line->with, folder, folder);
  snprintf(sweep->words, sizeof sweep->words, line->words, folder, folder, folder);
  snprintf(command, sizeof command, "env %s '%s' %s", with, line->calls ? calling : faulty,
           sweep->words);
  setenv("FATUNE_TEST_FAULT_SAYS", says, 1);
  setenv("FATUNE_FAKE_SAYS", fakes, 1);
  served_begin(&served, command, folder);
  snprintf(command, sizeof command, "'%s' cache verify", faulty);
  served_begin(&verifier, command, folder);
}

static void end_serving(void) {
  served_end(&served);
  served_end(&verifier);
}

/* A report says when it was made. */
static void forget_time(void) {
  for (char *at = output; (at = strstr(at, "\"at\":")) != NULL;)
    for (at += 5; *at >= '0' && *at <= '9'; at++) *at = '0';
}

/* The exit code of a run by that order; "": nothing fails. */
static int run_by(const struct sweep *sweep, const char *order) {
  char by[LINE + SERVED_ORDER + 8];
  snprintf(by, sizeof by, "%s by '%s'", sweep->words, order);
  const int code = take_end(by, served_run(&served, order));
  forget_time();
  return code;
}

/* Of a fake library, whose symbols begin so, the most calls of a process. */
static long calls_of_fake(const char *begin) {
  FILE *const file = fopen(fakes, "r");
  char name[64], number[24];
  long most = 0;
  while (file && fscanf(file, "%63s %23s", name, number) == 2) {
    const long calls = strtol(number, NULL, 10);
    if (strncmp(name, begin, strlen(begin)) == 0 && calls > most) most = calls;
  }
  if (file) fclose(file);
  return most;
}

/* A run without failures that tells how many calls of each kind there are, and of one kind its
 * places. */
static void count_places(struct sweep *sweep, const char *kind, enum source source,
                         const struct swept_places *swept, struct swept_places *now) {
  char order[SERVED_ORDER], numbers[3][24];
  unlink(says);
  restore();
  snprintf(order, sizeof order, "%s:0", kind);
  const int code = run_by(sweep, order);
  ck_assert_msg(code == sweep->line->code, "fatune %s: %d %s", sweep->words, code, messages);
  ck_assert_msg(sweep->line->tells || strcmp(output, sweep->right) == 0, "%s: another output:\n%s",
                sweep->words, output);
  FILE *const file = fopen(says, "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fscanf(file, "%23s %23s %23s ", numbers[0], numbers[1], numbers[2]), 3);
  sweep->counts[source] = strtol(numbers[source], NULL, 10);
  if (!tests_are_slow() || getenv("FATUNE_TEST_PLACES"))
    sweep->places[source].calls =
        swept_places_read(file, swept, now, sweep->counts[source], &sweep->places[source].count);
  fclose(file);
}

/* Runs without failures: the output, how many calls of each kind there are, and which of them are
 * to fail. */
static void count_calls(struct sweep *sweep, const struct swept_places *swept,
                        struct swept_places *now) {
  unlink(fakes);
  restore();
  const int code = run_by(sweep, "");
  ck_assert_msg(code == sweep->line->code, "fatune %s: %d %s", sweep->words, code, messages);
  sweep->right = strdup(output);
  for (int source = MEMORY; source <= DATABASE; source++)
    count_places(sweep, kinds[source].name, (enum source)source, swept, now);
  sweep->counts[DRIVER] = calls_of_fake("cu");
  sweep->counts[NVRTC] = calls_of_fake("nvrtc");
}

static void assert_right(const struct sweep *sweep, const char *order, int code) {
  const struct fault_line *const line = sweep->line;
  char path[96], kept[LINE];
  const bool right =
      strcmp(output, sweep->right) == 0 || (line->tells && strstr(output, line->tells));
  ck_assert_msg(code < 20, "fatune %s by %s: exit code %d\n%s", sweep->words, order, code,
                messages);
  ck_assert_msg(messages[0] || (code == line->code && right),
                "fatune %s by %s: exit code %d without a word, and this output:\n%.2000s",
                sweep->words, order, code, output);
  if (is_unchanged()) return; /* so the next run is as any other */
  snprintf(path, sizeof path, "%s/tuning.db", folder);
  ck_assert_msg(number_of(path, "SELECT count(*) FROM trials") >= trials,
                "%s by %s: trials are lost", sweep->words, order);
  snprintf(kept, sizeof kept, "%.400s", messages);
  int next = take_end("cache verify", served_run(&verifier, ""));
  ck_assert_msg(next == 0, "fatune %s by %s (%s): then cache verify: %d %s", sweep->words, order,
                kept, next, messages);
  next = run_by(sweep, "");
  ck_assert_msg(next == line->code, "fatune %s by %s (%s): once more: %d %s", sweep->words, order,
                kept, next, messages);
}

/* The i-th number of a sweep through 1 .. count; 0: there are no more. */
static long number_of_sweep(struct dice *dice, long i, long count) {
  const char *const part = getenv("FATUNE_TEST_PART");
  long first = 1, step = 1;
  if (!tests_are_slow())
    return i == 0 && count > 0 ? 1 + (long)(dice_bits(dice) % (uint64_t)count) : 0;
  if (part) {
    char *end;
    first = strtol(part, &end, 10);
    step = *end == '/' ? strtol(end + 1, NULL, 10) : 0;
    ck_assert_msg(first >= 1 && first <= step, "FATUNE_TEST_PART is %s; allowed: as 2/10", part);
  }
  const long n = first + i * step;
  return n <= count ? n : 0;
}

static void sweep_kind(struct sweep *sweep, const struct kind *kind, bool ever) {
  /* Not 1, by which a driver says that it does not know an attribute; nor 6, by which NVRTC refuses
   * a text, so that the next run does not try it again. */
  static const int codes[] = {999, 2, 200, 700, 719, 100};
  const long *const chosen = sweep->places[kind->source].calls;
  const long count = chosen ? sweep->places[kind->source].count : sweep->counts[kind->source];
  char order[SERVED_ORDER], code[16] = "";
  for (long i = 0, n; (n = number_of_sweep(&sweep->dice, i, count)) > 0; i++) {
    if (strchr(kind->name, '*'))
      snprintf(code, sizeof code, ":%d", codes[dice_below(&sweep->dice, 6)]);
    snprintf(order, sizeof order, "%s:%ld%s%s", kind->name, chosen ? chosen[n - 1] : n, code,
             ever ? ":ever" : "");
    restore();
    assert_right(sweep, order, run_by(sweep, order));
  }
}

static bool is_chosen(const char *variable, const char *value) {
  const char *const given = getenv(variable);
  return !given || strcmp(given, value) == 0;
}

static bool has_time(const struct sweep *sweep) {
  return tests_are_slow() || ft_seconds_now() - sweep->begin < SHORT_SECONDS;
}

/* The short form begins with one kind or another, and ends when its time is up. */
static void sweep_kinds(struct sweep *sweep) {
  const int first = dice_below(&sweep->dice, KINDS);
  for (int i = 0; i < KINDS && has_time(sweep); i++) {
    const struct kind *const kind = &kinds[(first + i) % KINDS];
    if (!is_chosen("FATUNE_TEST_KIND", kind->name)) continue;
    sweep_kind(sweep, kind, false);
    if (!kind->only_once) sweep_kind(sweep, kind, true);
  }
}

void fault_sweep(const struct fault_line *line, int index) {
  struct sweep sweep = {.line = line, .dice = dice_new(), .begin = ft_seconds_now()};
  struct swept_places swept = {NULL, 0}, now = {NULL, 0};
  char number[16];
  snprintf(number, sizeof number, "%d", index);
  if (!is_chosen("FATUNE_TEST_CASE", number)) return;
  swept_places_take(&swept);
  begin_serving(&sweep);
  count_calls(&sweep, &swept, &now);
  for (int round = 0; round < (tests_are_slow() ? 1 : SHORT_ROUNDS); round++) sweep_kinds(&sweep);
  if (tests_are_slow() && !getenv("FATUNE_TEST_PART")) swept_places_keep(&now);
  end_serving();
  swept_places_free(&swept);
  swept_places_free(&now);
  for (int source = 0; source < SOURCES; source++) free(sweep.places[source].calls);
  free(sweep.right);
}
