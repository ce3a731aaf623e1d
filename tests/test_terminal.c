/* test_terminal.c: what `fatune` writes to a terminal: colors, a line that is redrawn; and output
 * that goes to a device. in -> out: a pseudoterminal, its size, TERM, NO_COLOR, CI -> the bytes
 * that arrive there -> Check suite. */
#include <errno.h>
#include <pty.h>
#include <sys/stat.h>

#include "tests/run_program.h"
#include "tests/suites.h"

#define BOLD   "\033[1m"
#define GOOD   "\033[32m"
#define BAD    "\033[31m"
#define REDRAW "\r\033[K"

static char screen[1 << 20];

static void set_up(void) {
  begin_program_test();
  setenv("TERM", "xterm", 1);
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  unsetenv("NO_COLOR");
  unsetenv("CI");
}

/* As run, but both streams are a terminal. */
static void expect_on_terminal(const char *arguments, int columns, int code) {
  const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
  char line[8192];
  size_t length = 0;
  int terminal, status;
  snprintf(line, sizeof line, "exec '%s' %s </dev/null", program, arguments);
  const pid_t process = forkpty(&terminal, NULL, NULL, &size);
  ck_assert_int_ge(process, 0);
  if (process == 0) {
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
  }
  for (;;) { /* until EIO: nobody holds the other end */
    const ssize_t count = read(terminal, screen + length, sizeof screen - 1 - length);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    length += (size_t)count;
  }
  screen[length] = '\0';
  close(terminal);
  ck_assert_int_eq(waitpid(process, &status, 0), process);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == code, "%s: %d\n%s", arguments, status,
                screen);
}

static void assert_screen(const char *part, bool there) {
  ck_assert_msg((strstr(screen, part) != NULL) == there, "%s:\n%s", there ? "missing" : "there",
                screen);
}

/* ---- colors ---- */

/* A layer that others could write gives a warning. */
static void make_a_warning(void) {
  char line[256];
  snprintf(line, sizeof line, "mkdir -m 777 %s/layers && : >%s/layers/sm_80.fatune", folder,
           folder);
  ck_assert_int_eq(system(line), 0);
  snprintf(line, sizeof line, "%s/layers", folder);
  setenv("FATUNE_SYSTEM_PATH", line, 1);
}

START_TEST(a_terminal_has_colors) {
  make_a_warning();
  expect_on_terminal("explain d64 nq512 --gpu a100", 80, 0);
  assert_screen(BOLD "request", true);
  assert_screen(BOLD "warning: \033[0m", true);
  expect_on_terminal("doctor", 80, 1);
  assert_screen(GOOD "ok", true);
  assert_screen(BAD "bad", true);
  expect_on_terminal("explain d64 nq512 --gpu a100 --json", 80, 0);
  assert_screen("\"schema\": \"fatune.explain/1\"", true);
  assert_screen(BOLD "request", false);
}
END_TEST

static const struct {
  const char *variable, *value, *option;
  bool colored;
} choices[] = {{"NO_COLOR", "1", "", false},
               {"NO_COLOR", "", "", true},
               {"TERM", "dumb", "", false},
               {"TERM", "", "", false},
               {"TERM", NULL, "", false},
               {"TERM", "xterm", "--color never", false},
               {"TERM", "xterm", "--color auto", true},
               {"NO_COLOR", "1", "--color always", true},
               {"TERM", "dumb", "--color always", true}};

enum { CHOICES = sizeof choices / sizeof *choices };

START_TEST(whoever_wants_no_colors_gets_none) {
  char line[256];
  make_a_warning();
  if (choices[_i].value)
    setenv(choices[_i].variable, choices[_i].value, 1);
  else
    unsetenv(choices[_i].variable);
  snprintf(line, sizeof line, "explain d64 nq512 --gpu a100 %s", choices[_i].option);
  expect_on_terminal(line, 80, 0);
  assert_screen("\033[", choices[_i].colored);
}
END_TEST

START_TEST(a_file_gets_colors_when_asked_alone) {
  expect("explain d64 nq512 --gpu a100", 0);
  ck_assert_ptr_null(strchr(output, '\033'));
  expect("explain d64 nq512 --gpu a100 --color always", 0);
  expect_output(BOLD "request");
}
END_TEST

/* ---- progress ---- */

/* The longest line that is redrawn. */
static int longest_redrawn(void) {
  int longest = 0;
  for (const char *at = screen; (at = strstr(at, REDRAW)) != NULL;) {
    at += strlen(REDRAW);
    const int length = (int)strcspn(at, "\r\033");
    if (length > longest) longest = length;
  }
  return longest;
}

/* A bar of a quarter of the terminal, up to 40 cells; then figures and times. */
START_TEST(a_line_is_redrawn) {
  expect_on_terminal("tune d64 nq512 --gpu a100 --effort quick --shard 1/7", 81, 0);
  assert_screen(REDRAW "[##########..........] 1/2  50%  elapsed 0:", true);
  assert_screen("  eta 0:", true);
  assert_screen(REDRAW "[####################] 2/2 100%  elapsed 0:", true);
  assert_screen("  eta 0:00  best ", true);
  ck_assert_int_gt(longest_redrawn(), 40);
  expect_on_terminal("tune d64 nq1024 --gpu a100 --effort quick --shard 1/7", 400, 0);
  assert_screen(REDRAW "[####################....................] 1/2  50%", true);
}
END_TEST

/* A line longer than the terminal would wrap. Nobody's terminal has 10 columns. */
START_TEST(a_redrawn_line_fits_the_terminal) {
  expect_on_terminal("tune d64 nq512 --gpu a100 --effort quick --shard 1/7", 30, 0);
  ck_assert_int_eq(longest_redrawn(), 29);
  assert_screen(REDRAW "1/2", true); /* no room for a bar */
  expect_on_terminal("tune d64 nq1024 --gpu a100 --effort quick --shard 1/7", 10, 0);
  ck_assert_int_gt(longest_redrawn(), 40);
}
END_TEST

START_TEST(messages_do_not_mix_with_the_line) {
  expect_on_terminal("tune -v d64 nq512 --gpu a100 --effort quick --shard 1/7", 120, 0);
  assert_screen(REDRAW "fatune tune: mma_forward ", true);
  assert_screen(" regs  predicted", true);
}
END_TEST

START_TEST(nothing_is_redrawn_where_it_would_be_kept) {
  static const char *const variables[] = {"CI", "TERM"};
  char line[256];
  setenv(variables[_i], _i == 0 ? "true" : "dumb", 1);
  snprintf(line, sizeof line, "tune d64 nq%d --gpu a100 --effort quick --shard 1/7", 512 << _i);
  expect_on_terminal(line, 80, 0);
  assert_screen(REDRAW, false);
  assert_screen("[#", false);
  assert_screen("fatune tune: 2/2 100%  elapsed 0:", true); /* the last line */
  assert_screen("1/2", false);                              /* none of the minutes before */
  assert_screen("  eta ", false);
  expect_on_terminal("tune -q d64 nq2048 --gpu a100 --effort quick --shard 1/7", 80, 0);
  assert_screen(REDRAW, false);
  assert_screen("2/2", false);
}
END_TEST

/* ---- output ---- */

/* Through a link what it leads to is written, and the link stays: /dev/stdout is one. */
START_TEST(output_may_be_a_device_or_a_link) {
  char line[256], path[128];
  struct stat state;
  snprintf(line, sizeof line, "cd %s && mkfifo pipe && ln -s out a && ln -s new b", folder);
  ck_assert_int_eq(system(line), 0);
  expect("emit d64 nq512 --gpu a100", 0);
  char *const text = strdup(output);
  snprintf(line, sizeof line, "emit d64 nq512 --gpu a100 -o %s/a", folder);
  expect(line, 0);
  ck_assert_msg(strcmp(output, text) == 0, "another text behind the link");
  expect("emit d64 nq512 --gpu a100 -o -", 0);
  ck_assert_msg(strcmp(output, text) == 0, "another text");
  expect("emit d64 nq512 --gpu a100 -o /dev/null", 0);
  ck_assert_str_eq(output, "");
  snprintf(line, sizeof line, "emit d64 nq512 --gpu a100 -o %s/b", folder);
  expect(line, 0);
  read_file("new", output, sizeof output);
  ck_assert_msg(strcmp(output, text) == 0, "another text in a file that a link made");
  snprintf(line, sizeof line, "emit d64 nq512 --gpu a100 -o %s/pipe & cat %s/pipe", folder, folder);
  expect(line, 0);
  ck_assert_msg(strcmp(output, text) == 0, "another text through a pipe");
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%c", folder, "ab"[i]);
    ck_assert_int_eq(lstat(path, &state), 0);
    ck_assert(S_ISLNK(state.st_mode));
  }
  free(text);
}
END_TEST

START_TEST(output_that_cannot_be_written_is_told) {
  char line[256];
  expect("emit d64 nq512 --gpu a100 -o /dev/full", 1);
  expect_message("--output '/dev/full': No space left on device");
  expect("compile d64 nq512 --gpu a100 -o /dev/full", 1);
  expect_message("--output '/dev/full': No space left on device");
  snprintf(line, sizeof line, "emit d64 nq512 --gpu a100 -o %s", folder);
  expect(line, 1);
  expect_message("Is a directory");
  expect("emit d64 nq512 --gpu a100 -o /nowhere/text.cu", 1);
  expect_message("--output: ");
  expect_message("/nowhere/text.cu");
  expect("emit d64 nq512 --gpu a100 -o - --json", 2);
  expect_message("--output is '-' with --json; allowed: a file");
}
END_TEST

Suite *make_terminal_suite(void) {
  Suite *const suite = suite_create("terminal");
  TCase *const tests = tcase_create("terminal");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, end_program_test);
  tcase_add_test(tests, a_terminal_has_colors);
  tcase_add_loop_test(tests, whoever_wants_no_colors_gets_none, 0, CHOICES);
  tcase_add_test(tests, a_file_gets_colors_when_asked_alone);
  tcase_add_test(tests, a_line_is_redrawn);
  tcase_add_test(tests, a_redrawn_line_fits_the_terminal);
  tcase_add_test(tests, messages_do_not_mix_with_the_line);
  tcase_add_loop_test(tests, nothing_is_redrawn_where_it_would_be_kept, 0, 2);
  tcase_add_test(tests, output_may_be_a_device_or_a_link);
  tcase_add_test(tests, output_that_cannot_be_written_is_told);
  suite_add_tcase(suite, tests);
  return suite;
}
