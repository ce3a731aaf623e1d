/* test_faults.c: every command, with the n-th call for memory or files failing, once and for ever,
 * and with the n-th call of the driver and NVRTC. in -> out: command, kind of call, n -> an exit
 * code and a message, a sound store, a next run that works -> Check suite. Some n of each, others
 * each time; with FATUNE_TEST_SLOW=1 up to 200 of each. */
#include "tests/run_program.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

enum { SHORT_RUNS = 3, LONG_RUNS = 200, LINE = 512 };

struct command {
  const char *words; /* "%s": this test's folder */
  const char *tells; /* what stands in its output when it says there that something failed; "": its
                        output differs anyway */
};

static const struct command commands[] = {
    {"gpus", NULL},
    {"gpus --json", NULL},
    {"doctor", ""},
    {"emit d64 nq512 --gpu a100", NULL},
    {"explain d64 nq512 --gpu a100", "NVRTC missing"},
    {"explain d64 nq512 --gpu a100 --json", "\"nvrtc\": null"},
    {"explain --score alibi", NULL},
    {"compile d64 nq512 --gpu a100 -o %s/kernel.cubin", ""},
    {"tune d64 nq1024 --gpu a100 --effort quick --shard 1/7 -q", ""},
    {"cache path", NULL},
    {"cache list", NULL},
    {"cache list --json", NULL},
    {"cache stats", NULL},
    {"cache verify", NULL},
    {"cache verify --repair", NULL},
    {"cache verify %s/sm_80.fatune", NULL},
    {"cache gc --cap 1M", NULL},
    {"cache export --gpu a100 -o %s/new.fatune", NULL},
    {"cache import %s/sm_80.fatune", NULL},
    {"cache merge %s/theirs.db", NULL},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static const char *const kinds[] = {"memory", "files"};
static char faulty[4096 + 8], sound[4096];
static int64_t trials;

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
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  expect("tune d64 nq512 --gpu a100 --effort quick --shard 1/7 -q", 0);
  snprintf(line, sizeof line, "cache export --gpu a100 -o %s/sm_80.fatune", folder);
  expect(line, 0);
  shell("cp %s/tuning.db %s/theirs.db && mkdir %s/saved && cp %s/*.db %s/*.fatune %s/saved", folder,
        folder, folder, folder, folder, folder);
  snprintf(line, sizeof line, "%s/tuning.db", folder);
  trials = number_of(line, "SELECT count(*) FROM trials");
  ck_assert_int_gt(trials, 0);
}

static void tear_down(void) {
  strcpy(program, sound);
  end_program_test();
}

static void restore(void) {
  shell("cd %s && rm -f *.db* *.fatune* && cp saved/* .", folder);
}

/* The exit code of a run with that order; *count: the calls there were. */
static int run_faulty(const char *line, const char *order, long *count) {
  char says[96];
  snprintf(says, sizeof says, "%s/says", folder);
  restore();
  unlink(says);
  setenv("FATUNE_TEST_FAULT_SAYS", says, 1);
  setenv("FATUNE_TEST_FAULT", order, 1);
  strcpy(program, faulty);
  const int code = run(line);
  strcpy(program, sound);
  unsetenv("FATUNE_TEST_FAULT");
  ck_assert_msg(code < 20, "fatune %s by %s: exit code %d\n%s", line, order, code, messages);
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
  ck_assert_msg(messages[0] || (code == 0 && is_right(command, right)),
                "fatune %s by %s: exit code %d without a word, and this output:\n%.2000s", line,
                order, code, output);
  snprintf(path, sizeof path, "%s/tuning.db", folder);
  ck_assert_msg(number_of(path, "SELECT count(*) FROM trials") >= trials,
                "%s by %s: trials are lost", line, order);
  snprintf(kept, sizeof kept, "%.400s", messages);
  int next = run("cache verify");
  ck_assert_msg(next == 0, "fatune %s by %s (%s): then cache verify: %d %s", line, order, kept,
                next, messages);
  next = run(line);
  ck_assert_msg(next == 0, "fatune %s by %s (%s): once more: %d %s", line, order, kept, next,
                messages);
}

static void sweep(const struct command *command, const char *kind, bool ever, const char *right) {
  char line[LINE], order[64];
  long count = 0, none;
  struct dice dice = dice_new();
  snprintf(line, sizeof line, command->words, folder);
  snprintf(order, sizeof order, "%s:1000000000", kind);
  ck_assert_int_eq(run_faulty(line, order, &count), 0);
  ck_assert_msg(command->tells || strcmp(output, right) == 0, "%s: another output:\n%s", line,
                output);
  const long runs = tests_are_slow() ? LONG_RUNS : SHORT_RUNS;
  for (long i = 0; i < runs && i < count; i++) {
    const long n = count <= runs ? i + 1 : 1 + (long)(dice_bits(&dice) % (uint64_t)count);
    snprintf(order, sizeof order, "%s:%ld%s", kind, n, ever ? ":ever" : "");
    assert_right(command, line, order, run_faulty(line, order, &none), right);
  }
}

START_TEST(a_failing_call_is_told_and_harms_nothing) {
  const struct command *const command = &commands[_i];
  char line[LINE];
  snprintf(line, sizeof line, command->words, folder);
  restore();
  expect(line, 0);
  char *const right = strdup(output);
  for (int kind = 0; kind < 2; kind++)
    for (int ever = 0; ever < 2; ever++) sweep(command, kinds[kind], ever, right);
  free(right);
}
END_TEST

/* ---- driver and NVRTC ---- */

static const struct {
  const char *words;
  int code;     /* without a failure: the fake GPU runs no kernel, so its results are wrong */
  bool repeats; /* the same output each time */
} on_gpu[] = {
    {"doctor", 0, false},
    {"explain d64 nq256", 0, true},
    {"emit d64 nq256", 0, true},
    {"compile d64 nq256 -o %s/kernel.cubin", 0, false},
    {"bench d64 nq256", 0, false},
    {"verify d64 nq256", 7, false},
    {"tune --gpu auto --effort quick d64 nq256 -q", 5, false},
};

enum { ON_GPU = sizeof on_gpu / sizeof *on_gpu, CALLS = 120 };

START_TEST(a_failing_driver_is_told) {
  static const int codes[] = {999, 2, 200, 700, 1, 100};
  struct dice dice = dice_new();
  char line[LINE], failure[32];
  snprintf(line, sizeof line, on_gpu[_i].words, folder);
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  restore();
  expect(line, on_gpu[_i].code);
  char *const right = strdup(output);
  const int runs = tests_are_slow() ? CALLS : 2 * SHORT_RUNS;
  for (int i = 0; i < runs; i++) {
    const int n = runs == CALLS ? i + 1 : 1 + (int)(dice_bits(&dice) % CALLS);
    snprintf(failure, sizeof failure, "*:%d:%d", n, codes[dice_bits(&dice) % 6]);
    restore();
    setenv("FATUNE_FAKE_FAIL", failure, 1);
    const int code = run(line);
    unsetenv("FATUNE_FAKE_FAIL");
    ck_assert_msg(code < 20, "fatune %s by %s: exit code %d\n%s", line, failure, code, messages);
    ck_assert_msg(code == 0 || code == on_gpu[_i].code || messages[0],
                  "fatune %s by %s: exit code %d without a word", line, failure, code);
    ck_assert_msg(code != 0 || !on_gpu[_i].repeats || messages[0] || strcmp(output, right) == 0 ||
                      strstr(output, "NVRTC missing"),
                  "fatune %s by %s: another output without a word:\n%.2000s", line, failure,
                  output);
    expect("cache verify", 0);
    expect(line, on_gpu[_i].code);
  }
  free(right);
}
END_TEST

START_TEST(doctor_notices_a_network) {
  expect("doctor", 0);
  ck_assert_ptr_null(strstr(output, "network"));
  setenv("FATUNE_TEST_NETWORK", "1", 1);
  strcpy(program, faulty);
  expect("doctor", 0);
  strcpy(program, sound);
  expect_output("tuning         unknown");
  expect_output("kernels        unknown");
  expect_output("its file system may be of a network");
}
END_TEST

Suite *make_faults_suite(void) {
  Suite *const suite = suite_create("faults");
  TCase *const tests = tcase_create("commands");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_set_timeout(tests, tests_are_slow() ? 3600 : 120);
  tcase_add_loop_test(tests, a_failing_call_is_told_and_harms_nothing, 0, COMMANDS);
  tcase_add_loop_test(tests, a_failing_driver_is_told, 0, ON_GPU);
  tcase_add_test(tests, doctor_notices_a_network);
  suite_add_tcase(suite, tests);
  return suite;
}
