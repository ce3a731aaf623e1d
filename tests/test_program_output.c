/* test_program_output.c: what the program wrote has arrived whole, or it says that it has not.
 * in -> out: full devices, closed streams, limits of size -> exit codes -> Check suite. */
#include "tests/suites.h"

#include "tests/run_program.h"
#include "tests/store_fixture.h"

/* The program's exit code when a shell runs it so, its messages kept. */
static int exit_of_line(const char *before, const char *words, const char *after) {
  char command[8192];
  snprintf(command, sizeof command, "%s '%s' %s %s 2>'%s/err'", before, program, words, after,
           folder);
  const int status = system(command);
  read_file("err", messages, sizeof messages);
  ck_assert(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* Of a damaged file, for instance. */
START_TEST(what_a_message_quotes_steers_no_terminal) {
  ck_assert_int_eq(exit_of_line("", "explain \"d64 nq128 $(printf '\\033[2Jword\\177')\"", ""), 2);
  expect_message("'?[2Jword?' is no word of a request");
  ck_assert_ptr_null(strchr(messages, '\033'));
}
END_TEST

START_TEST(lost_output_is_a_failure_and_a_gone_reader_is_not) {
  static const char *const lines[] = {"gpus", "--help", "--version", "emit --help", "help cache"};
  char command[8192];
  for (int i = 0; i < (int)(sizeof lines / sizeof *lines); i++) {
    ck_assert_msg(exit_of_line("", lines[i], ">/dev/full") == 1, "%s", lines[i]);
    expect_message("fatune: stdout: ");
  }
  ck_assert_int_eq(exit_of_line("", "gpus", ">&-"), 1);

  /* A reader that takes one line of a source longer than a pipe holds. */
  snprintf(command, sizeof command,
           "{ for i in 1 2 3 4 5 6 7 8; do '%s' emit d64 nq128 --gpu a100 || echo $? >'%s/code'; "
           "done; } 2>'%s/err' | head -n 1 >/dev/null",
           program, folder, folder);
  const int status = system(command);
  ck_assert_int_eq(WEXITSTATUS(status), 0);
  read_file("err", messages, sizeof messages);
  ck_assert_str_eq(messages, "");
  snprintf(command, sizeof command, "%s/code", folder);
  ck_assert_msg(access(command, F_OK) != 0, "a gone reader was a failure");
}
END_TEST

/* As on a full disk: told, and what was there before is there yet. No file may have 4 KiB. */
START_TEST(a_limit_of_file_sizes_is_a_failure) {
  static const char *const lines[][2] = {
      {"emit d64 nq128 --gpu a100", "File too large"},
      {"compile d64 nq128 --gpu a100", "File too large"},
      {"cache export --allow-empty --gpu sm_90", "cannot be written"}};
  char path[160], output_option[256], command[256], kept[16];
  snprintf(path, sizeof path, "%s/made", folder);
  snprintf(output_option, sizeof output_option, "-o '%s'", path);
  for (int i = 0; i < (int)(sizeof lines / sizeof *lines); i++) {
    write_bytes(path, "before", 6);
    const int code = exit_of_line("ulimit -f 4;", lines[i][0], output_option);
    ck_assert_msg(code == 1 || code == 6, "%s: %d %s", lines[i][0], code, messages);
    expect_message(lines[i][1]);
    read_file("made", kept, sizeof kept);
    ck_assert_str_eq(kept, "before");
  }
  snprintf(command, sizeof command, "ls '%s' | grep unfinished", folder);
  ck_assert_int_ne(system(command), 0);
}
END_TEST

Suite *make_program_output_suite(void) {
  Suite *const suite = suite_create("program_output");
  TCase *const tests = tcase_create("output");
  tcase_add_checked_fixture(tests, begin_program_test, end_program_test);
  tcase_set_timeout(tests, 240);
  tcase_add_test(tests, what_a_message_quotes_steers_no_terminal);
  tcase_add_test(tests, lost_output_is_a_failure_and_a_gone_reader_is_not);
  tcase_add_test(tests, a_limit_of_file_sizes_is_a_failure);
  suite_add_tcase(suite, tests);
  return suite;
}
