/* test_faults.c: every command and every public call, with the n-th call for memory or files, or of
 * the driver and NVRTC, failing, once and for ever. in -> out: command, kind of call, n -> an exit
 * code and a message, a sound store, a next run that works -> Check suite. Some n of each, others
 * each time; with FATUNE_TEST_SLOW=1 every n, and with FATUNE_TEST_PLACES=FILE besides, of the
 * calls for memory by one chain of callers the first and the last, unless the file names the chain,
 * as it does afterwards; FATUNE_TEST_CASE=n: the n-th command
 * alone, FATUNE_TEST_PART=2/10: of its n's the second, the twelfth, ... */
#include <dirent.h>

#include "tests/run_program.h"
#include "tests/served_program.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

enum { SHORT_RUNS = 3, LINE = 512 };

struct command {
  const char *words; /* "%s": this test's folder */
  const char *tells; /* what stands in its output when it says there that something failed; "": its
                        output differs anyway */
  int code;          /* without a failure: the fake GPU runs no kernel, so its results are wrong */
  bool calls;        /* of fatune_calls, not fatune */
  bool gpu;          /* on the fake GPU */
};

static const struct command commands[] = {
    {.words = "gpus"},
    {.words = "gpus --json"},
    {.words = "doctor", .tells = ""},
    {.words = "emit d64 nq512 --gpu a100"},
    {.words = "explain d64 nq512 --gpu a100", .tells = "NVRTC missing"},
    {.words = "explain d64 nq512 --gpu a100 --json", .tells = "\"nvrtc\": null"},
    {.words = "explain --score alibi"},
    {.words = "compile d64 nq512 --gpu a100 -o %s/kernel.cubin", .tells = ""},
    {.words = "tune d64 nq1024 --gpu a100 --effort quick --shard 1/7 -q", .tells = ""},
    {.words = "cache path"},
    {.words = "cache list"},
    {.words = "cache list --json"},
    {.words = "cache stats"},
    {.words = "cache verify"},
    {.words = "cache verify --repair"},
    {.words = "cache verify %s/sm_80.fatune"},
    {.words = "cache gc --cap 1M"},
    {.words = "cache export --gpu a100 -o %s/new.fatune"},
    {.words = "cache import %s/sm_80.fatune"},
    {.words = "cache merge %s/theirs.db"},
    {.words =
         "cache export --gpu a100 -o %s/new.fatune --sign " FATUNE_TESTS_DIR "/signed/test.key"},
    {.words = "cache list --all --json"},
    {.words = "cache stats --json"},
    {.words = "cache verify --json %s/sm_80.fatune"},
    {.words = "emit d64 nq512 --gpu a100 --json"},
    {.words = "compile d64 nq512 --gpu a100 --json", .tells = ""},
    {.words = "bench d16 nq16", .tells = "", .gpu = true},
    {.words = "bench d16 nq16 --json", .tells = "", .gpu = true},
    {.words = "verify d16 nq16", .tells = "", .code = 7, .gpu = true},
    {.words = "explain 'backward d64 nq256'", .tells = "NVRTC missing", .gpu = true},
    {.words = "tune --gpu auto --effort quick --shard 1/20 'backward d16 nq16' -q",
     .tells = "",
     .code = 5,
     .gpu = true},
    {.words = "verify d16 nq16 --gpu emulator", .tells = ""},
    {.words = "calls", .calls = true, .gpu = true},
    {.words = "tune", .tells = "", .calls = true, .code = 1, .gpu = true},
};

/* Those whose driver fails. */
static const struct command on_gpu[] = {
    {.words = "doctor", .tells = ""},
    {.words = "explain 'backward d64 nq256'", .tells = "NVRTC missing"},
    {.words = "emit d64 nq256"},
    {.words = "compile d64 nq256 -o %s/kernel.cubin", .tells = ""},
    {.words = "bench d16 nq16", .tells = ""},
    {.words = "verify d16 nq16", .tells = "", .code = 7},
    {.words = "tune --gpu auto --effort quick --shard 1/20 'backward d16 nq16' -q",
     .tells = "",
     .code = 5},
    {.words = "calls", .calls = true},
    {.words = "tune", .tells = "", .calls = true, .code = 1},
};

enum { COMMANDS = sizeof commands / sizeof *commands, ON_GPU = sizeof on_gpu / sizeof *on_gpu };

static const char *const kinds[] = {"memory", "files"};
static char faulty[4096 + 8], calling[4096 + 8], sound[4096];
static int64_t trials;
static int saved_files;
static struct served_program by_command, verifier;
static char says[96]; /* the file that tells how many calls there were */

static void shell(const char *format, ...) {
  char line[2 * LINE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  ck_assert_msg(system(line) == 0, "%s", line);
}

/* A store that was tuned, what was exported of it, and a copy of both to begin each run with. */
static void set_up(void) {
  char line[LINE];
  begin_program_test();
  strcpy(sound, program);
  snprintf(faulty, sizeof faulty, "%s_faulty", sound);
  snprintf(calling, sizeof calling, "%s_calls", sound);
  snprintf(says, sizeof says, "%s/says", folder);
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  expect("tune d64 nq512 --gpu a100 --effort quick --shard 1/7 -q", 0);
  snprintf(line, sizeof line, "cache export --gpu a100 -o %s/sm_80.fatune", folder);
  expect(line, 0);
  shell("cd %s && cp tuning.db theirs.db && mkdir saved && cp *.db *.fatune saved", folder);
  saved_files = 4; /* tuning.db, kernels.db, theirs.db, sm_80.fatune */
  snprintf(line, sizeof line, "%s/tuning.db", folder);
  trials = number_of(line, "SELECT count(*) FROM trials");
  ck_assert_int_gt(trials, 0);
}

static void tear_down(void) {
  strcpy(program, sound);
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

/* All that lies in the folder, and in `saved`, is the same, but for what programs say. */
static bool is_unchanged(void) {
  static const char *const said[] = {".", "..", "saved", "says", "out", "err"};
  DIR *const files = opendir(folder);
  ck_assert_ptr_nonnull(files);
  int same = 0;
  bool other = false;
  for (const struct dirent *file; !other && (file = readdir(files)) != NULL;) {
    char path[512], saved[512];
    bool counts = true;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
      counts = counts && strcmp(file->d_name, said[i]) != 0;
    if (!counts) continue;
    snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
    snprintf(saved, sizeof saved, "%s/saved/%s", folder, file->d_name);
    other = !is_same_file(path, saved);
    same += !other;
  }
  closedir(files);
  return !other && same == saved_files;
}

static void restore(void) {
  if (is_unchanged()) return;
  shell("cd %s && rm -f *.db* *.fatune* *.cubin nvrtc kernels.claims && cp saved/* .", folder);
}

static void use_fake_gpu(void) {
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  setenv("FATUNE_FAKE_MS", "1000", 1); /* else a measurement is 100 000 calls */
}

static void begin_serving(const struct command *command, const char *line) {
  char words[LINE + sizeof faulty];
  snprintf(words, sizeof words, "'%s' %s", command->calls ? calling : faulty, line);
  setenv("FATUNE_TEST_FAULT_SAYS", says, 1);
  served_begin(&by_command, words, folder);
  snprintf(words, sizeof words, "'%s' cache verify", faulty);
  served_begin(&verifier, words, folder);
}

static void end_serving(void) {
  served_end(&by_command);
  served_end(&verifier);
}

/* The exit code of a run by that order; "": nothing fails. */
static int run_by(const char *line, const char *order) {
  return take_end(line, served_run(&by_command, order));
}

/* Of a run by an order for calls of its own; *count: the calls there were. */
static int run_faulty(const char *line, const char *order, long *count) {
  restore();
  unlink(says);
  const int code = run_by(line, order);
  /* Whoever has no memory to say so leaves by _exit. */
  FILE *const file = fopen(says, "r");
  *count = 0;
  ck_assert_msg(file != NULL || code == 1, "%s by %s: no end", line, order);
  if (file) {
    char text[32] = "", *rest;
    ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
    *count = strtol(text, &rest, 10);
    ck_assert_ptr_ne(rest, text);
    fclose(file);
  }
  return code;
}

static bool is_right(const struct command *command, const char *right) {
  return strcmp(output, right) == 0 || (command->tells && strstr(output, command->tells));
}

static void assert_right(const struct command *command, const char *line, const char *order,
                         int code, const char *right) {
  char path[96], kept[LINE];
  ck_assert_msg(code < 20, "fatune %s by %s: exit code %d\n%s", line, order, code, messages);
  ck_assert_msg(messages[0] || (code == command->code && is_right(command, right)),
                "fatune %s by %s: exit code %d without a word, and this output:\n%.2000s", line,
                order, code, output);
  if (is_unchanged()) return; /* so the next run is as any other */
  snprintf(path, sizeof path, "%s/tuning.db", folder);
  ck_assert_msg(number_of(path, "SELECT count(*) FROM trials") >= trials,
                "%s by %s: trials are lost", line, order);
  snprintf(kept, sizeof kept, "%.400s", messages);
  int next = take_end("cache verify", served_run(&verifier, ""));
  ck_assert_msg(next == 0, "fatune %s by %s (%s): then cache verify: %d %s", line, order, kept,
                next, messages);
  next = run_by(line, "");
  ck_assert_msg(next == command->code, "fatune %s by %s (%s): once more: %d %s", line, order, kept,
                next, messages);
}

/* The i-th number of a sweep through 1 .. count; 0: there are no more. */
static long number_of_sweep(struct dice *dice, long i, long count) {
  const char *const part = getenv("FATUNE_TEST_PART");
  long first = 1, step = 1;
  if (!tests_are_slow())
    return i < SHORT_RUNS && i < count ? 1 + (long)(dice_bits(dice) % (uint64_t)count) : 0;
  if (part) {
    char *end;
    first = strtol(part, &end, 10);
    step = *end == '/' ? strtol(end + 1, NULL, 10) : 0;
    ck_assert_msg(first >= 1 && first <= step, "FATUNE_TEST_PART is %s; allowed: as 2/10", part);
  }
  const long n = first + i * step;
  return n <= count ? n : 0;
}

/* ---- places: chains of callers that ask for memory ---- */

struct places {
  char (*names)[17];
  long count;
};

static bool has_place(const struct places *places, const char *name) {
  for (long i = 0; i < places->count; i++)
    if (strcmp(places->names[i], name) == 0) return true;
  return false;
}

static void add_place(struct places *places, const char *name) {
  places->names = realloc(places->names, (size_t)(places->count + 1) * sizeof *places->names);
  ck_assert_ptr_nonnull(places->names);
  strcpy(places->names[places->count++], name);
}

static void read_places(struct places *places) {
  const char *const path = getenv("FATUNE_TEST_PLACES");
  FILE *const file = path ? fopen(path, "r") : NULL;
  char name[17];
  while (file && fscanf(file, "%16s", name) == 1) add_place(places, name);
  if (file) fclose(file);
}

/* Those of a whole sweep alone. */
static void write_places(const struct places *places) {
  const bool whole = tests_are_slow() && !getenv("FATUNE_TEST_PART");
  const char *const path = whole ? getenv("FATUNE_TEST_PLACES") : NULL;
  FILE *const file = path ? fopen(path, "a") : NULL;
  ck_assert(!path || file);
  for (long i = 0; file && i < places->count; i++) fprintf(file, "%s\n", places->names[i]);
  if (file) ck_assert_int_eq(fclose(file), 0);
}

/* After a run by the order 0: the n's that are to fail, and how many they are. Of the calls for
 * memory most are Lua's, by few chains of callers; so the short form takes places, too. */
static long *calls_to_fail(const char *kind, const struct places *swept, struct places *now,
                           long *count) {
  const bool each =
      strcmp(kind, "files") == 0 || (tests_are_slow() && !getenv("FATUNE_TEST_PLACES"));
  const long all = *count;
  char name[17], texts[2][21];
  long *const calls = calloc((size_t)all + 1, sizeof *calls), place[2];
  ck_assert_ptr_nonnull(calls);
  *count = 0;
  for (long n = 1; each && n <= all; n++) calls[(*count)++] = n;
  if (each) return calls;
  FILE *const file = fopen(says, "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fscanf(file, "%*d"), 0);
  while (fscanf(file, "%16s %20s %20s", name, texts[0], texts[1]) == 3) {
    for (int i = 0; i < 2; i++) place[i] = strtol(texts[i], NULL, 10);
    if (has_place(swept, name)) continue;
    if (!has_place(now, name)) add_place(now, name);
    for (int i = 0; i < 2 && (i == 0 || place[1] != place[0]); i++) {
      ck_assert(place[i] >= 1 && place[i] <= all && *count < all);
      calls[(*count)++] = place[i];
    }
  }
  fclose(file);
  return calls;
}

static bool is_chosen(int index) {
  const char *const given = getenv("FATUNE_TEST_CASE");
  return !given || strtol(given, NULL, 10) == index;
}

static void sweep(const struct command *command, const char *kind, bool ever,
                  const struct places *swept, struct places *now, const char *right) {
  char line[LINE], order[64];
  long count = 0, none;
  struct dice dice = dice_new();
  snprintf(line, sizeof line, command->words, folder);
  snprintf(order, sizeof order, "%s:0", kind);
  ck_assert_int_eq(run_faulty(line, order, &count), command->code);
  ck_assert_msg(command->tells || strcmp(output, right) == 0, "%s: another output:\n%s", line,
                output);
  long *const calls = calls_to_fail(kind, swept, now, &count);
  for (long i = 0, n; (n = number_of_sweep(&dice, i, count)) > 0; i++) {
    snprintf(order, sizeof order, "%s:%ld%s", kind, calls[n - 1], ever ? ":ever" : "");
    assert_right(command, line, order, run_faulty(line, order, &none), right);
  }
  free(calls);
}

START_TEST(a_failing_call_is_told_and_harms_nothing) {
  const struct command *const command = &commands[_i];
  char line[LINE];
  if (!is_chosen(_i)) return;
  set_up();
  if (command->gpu) use_fake_gpu();
  snprintf(line, sizeof line, command->words, folder);
  restore();
  begin_serving(command, line);
  ck_assert_int_eq(run_by(line, ""), command->code);
  char *const right = strdup(output);
  struct places swept = {NULL, 0}, now = {NULL, 0};
  read_places(&swept);
  for (int kind = 0; kind < 2; kind++)
    for (int ever = 0; ever < 2; ever++) sweep(command, kinds[kind], ever, &swept, &now, right);
  write_places(&now);
  end_serving();
  free(swept.names);
  free(now.names);
  free(right);
  tear_down();
}
END_TEST

/* ---- driver and NVRTC ---- */

/* The more of the two numbers that the fake libraries wrote. */
static long calls_said(void) {
  long most = 0;
  char text[32];
  FILE *const file = fopen(says, "r");
  ck_assert_msg(file != NULL, "no fake library was opened");
  while (fgets(text, sizeof text, file)) {
    const long calls = strtol(text, NULL, 10);
    if (calls > most) most = calls;
  }
  fclose(file);
  return most;
}

static long calls_of(const struct command *command, const char *line) {
  unlink(says);
  setenv("FATUNE_FAKE_SAYS", says, 1);
  strcpy(program, command->calls ? calling : sound);
  ck_assert_int_eq(run(line), command->code);
  strcpy(program, sound);
  unsetenv("FATUNE_FAKE_SAYS");
  return calls_said();
}

/* The n-th call of the driver fails, and the n-th of NVRTC. */
static void sweep_gpu(const struct command *command, bool ever, long count, const char *right) {
  /* Not 1, by which a driver says that it does not know an attribute. */
  static const int codes[] = {999, 2, 200, 700, 719, 100};
  struct dice dice = dice_new();
  char line[LINE], failure[48];
  snprintf(line, sizeof line, command->words, folder);
  for (long i = 0, n; (n = number_of_sweep(&dice, i, count)) > 0; i++) {
    snprintf(failure, sizeof failure, "*:%ld:%d%s", n, codes[dice_bits(&dice) % 6],
             ever ? ":ever" : "");
    restore();
    assert_right(command, line, failure, run_by(line, failure), right);
  }
}

START_TEST(a_failing_driver_is_told) {
  const struct command *const command = &on_gpu[_i];
  char line[LINE];
  if (!is_chosen(COMMANDS + _i)) return;
  set_up();
  use_fake_gpu();
  snprintf(line, sizeof line, command->words, folder);
  restore();
  const long count = calls_of(command, line);
  char *const right = strdup(output);
  begin_serving(command, line);
  for (int ever = 0; ever < 2; ever++) sweep_gpu(command, ever, count, right);
  end_serving();
  free(right);
  tear_down();
}
END_TEST

/* So that a public function that is new is swept, too. */
START_TEST(each_public_function_is_called) {
  static const char *const paths[] = {FATUNE_SOURCE_DIR "/runtime/fatune.h",
                                      FATUNE_TESTS_DIR "/faulty/public_calls.c"};
  struct bytes header = read_bytes(paths[0]), calls = read_bytes(paths[1]);
  int functions = 0;
  header.data[header.size] = calls.data[calls.size] = '\0';
  for (const char *at = (const char *)header.data; (at = strstr(at, "\nFATUNE_API ")) != NULL;) {
    char name[64];
    at = strchr(at, '(');
    ck_assert_ptr_nonnull(at);
    int length = 0;
    while (at[-length - 1] == '_' || (at[-length - 1] >= 'a' && at[-length - 1] <= 'z')) length++;
    snprintf(name, sizeof name, "%.*s(", length, at - length);
    ck_assert_msg(strstr((const char *)calls.data, name) != NULL, "%s is not called", name);
    functions++;
  }
  ck_assert_int_gt(functions, 20);
  free(header.data);
  free(calls.data);
}
END_TEST

START_TEST(doctor_notices_a_network) {
  set_up();
  expect("doctor", 0);
  ck_assert_ptr_null(strstr(output, "network"));
  setenv("FATUNE_TEST_NETWORK", "1", 1);
  strcpy(program, faulty);
  expect("doctor", 0);
  strcpy(program, sound);
  expect_output("tuning         unknown");
  expect_output("kernels        unknown");
  expect_output("its file system may be of a network");
  tear_down();
}
END_TEST

Suite *make_faults_suite(void) {
  Suite *const suite = suite_create("faults");
  TCase *const tests = tcase_create("commands");
  tcase_set_timeout(tests, tests_are_slow() ? 36000 : 120);
  tcase_add_loop_test(tests, a_failing_call_is_told_and_harms_nothing, 0, COMMANDS);
  tcase_add_loop_test(tests, a_failing_driver_is_told, 0, ON_GPU);
  tcase_add_test(tests, each_public_function_is_called);
  tcase_add_test(tests, doctor_notices_a_network);
  suite_add_tcase(suite, tests);
  return suite;
}
