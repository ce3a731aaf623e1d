/* test_record_many.c: many sizes of each kernel: listed, compiled, timed on the fake GPU, searched
 * again. in -> out: command lines of record_many and record_many.py -> lists, trials -> Check
 * suite. */
#include "tests/run_program.h"
#include "tests/suites.h"

#include "generator/status.h"
#include "tuner/cli/fit/trials_file.h"

/* Requests of two kinds; the last is none. */
static const char requests[] = "bf16 d64 hq4 nq256 causal\n"
                               "backward bf16 d64 hq4 nq300\n"
                               "bf16 d64 nq1 nk512 pages=16\n";

static void set_up(void) {
  begin_program_test();
  snprintf(strrchr(program, '/') + 1, 32, "record_many");
  ck_assert_msg(access(program, X_OK) == 0, "no program at '%s'", program);
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  setenv("FATUNE_LIBNVML", FATUNE_FAKE_DIR "/libfake_nvml.so", 1);
  setenv("FATUNE_FAKE_MS", "2", 1);
}

static void write_file(const char *name, const char *content) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs(content, file), 0);
  fclose(file);
}

/* In the words, % is the folder. */
static void expect_in_folder(const char *words, int code) {
  char line[1024];
  size_t length = 0;
  for (; *words; words++) {
    if (*words != '%')
      line[length++] = *words;
    else
      length += (size_t)snprintf(line + length, 64, "%s", folder);
  }
  line[length] = '\0';
  expect(line, code);
}

/* The first `count` configs of each request, in %/list. */
static void make_list(int count) {
  char line[128];
  write_file("requests", requests);
  snprintf(line, sizeof line, "configs h200 %d %%/requests", count);
  expect_in_folder(line, 0);
  write_file("list", output);
}

static int count_lines(const char *text, const char *beginning) {
  int count = 0;
  for (const char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
    count += strncmp(at, beginning, strlen(beginning)) == 0;
  return count;
}

/* To be freed by the caller. */
static struct ft_trials read_trials(void) {
  char path[128];
  struct ft_trials trials;
  snprintf(path, sizeof path, "%s/trials", folder);
  ck_assert_msg(ft_trials_read(&trials, path) == FT_OK, "%s", ft_detail());
  return trials;
}

START_TEST(configs_are_listed_default_first) {
  static char list[65536];
  make_list(5);
  read_file("list", list, sizeof list);
  ck_assert_int_eq(count_lines(list, "R "), 3);
  ck_assert_int_eq(count_lines(list, "C "), 15);
  write_file("requests", "bf16 d64 nq256\nno request\n");
  expect_in_folder("configs h200 1 %/requests", 2);
  expect_message("no request");
  ck_assert_int_eq(count_lines(output, "R "), 1);
}
END_TEST

START_TEST(kernels_are_compiled_once_and_timed) {
  make_list(4);
  expect_in_folder("compile h200 %/list 2 100", 0);
  expect_output("12 kernels of 12 items, 12 compiled now, 0 failed");
  expect_in_folder("compile h200 %/list 2 100", 0);
  expect_output("12 kernels of 12 items, 0 compiled now");
  expect_in_folder("run %/list %/trials 0 100 0", 0);
  expect_output("3 requests, 12 timed, 0 without a kernel");
  struct ft_trials trials = read_trials();
  ck_assert_int_eq(trials.row_count, 12);
  for (int n = 0; n < trials.row_count; n++) {
    const struct ft_trials_row *const row = &trials.rows[n];
    ck_assert_int_eq(row->outcome, FT_OUTCOME_SCREENED);
    ck_assert_double_gt(row->median_us, 0);
    ck_assert_int_gt(row->sm_clock_mhz, 0);
    ck_assert_int_eq(row->is_default, n % 4 == 0);
    ck_assert(ft_trials_ran(&trials, row));
  }
  ck_assert_str_eq(trials.requests[2].text, "forward bf16 d64 nq1 nk512 pages=16");
  ck_assert_str_eq(trials.heads[0].what, "record_many");
  ck_assert_str_eq(trials.heads[0].policy, "events-warm/3");
  ck_assert_uint_eq(strlen(trials.heads[0].date), strlen("2026-11-28"));
  ck_assert(trials.heads[0].driver[0] != '\0' && trials.heads[0].nvrtc[0] != '\0');
  ck_assert_int_eq(trials.run_count, 1);
  ft_trials_free(&trials);
}
END_TEST

START_TEST(a_run_goes_on_where_another_stopped) {
  make_list(2);
  expect_in_folder("compile h200 %/list 2 100", 0);
  expect_in_folder("run %/list %/trials 0 100 2 'a first run'", 0);
  expect_output("1 requests, 2 timed");
  expect_output("\n3\n");
  expect_in_folder("run %/list %/trials 0 -1 1 'a first run'", 0);
  expect_output("0 requests, 0 timed");
  expect_output("\n1\n");
  expect_in_folder("run %/list %/trials 0 100 1 'a first run'", 0);
  expect_in_folder("run %/list %/trials 0 100 2 'a second run'", 0);
  struct ft_trials trials = read_trials();
  ck_assert_int_eq(trials.row_count, 8);
  ck_assert_int_eq(trials.run_count, 2);
  for (int n = 0; n < trials.row_count; n++) ck_assert_int_eq(trials.rows[n].run, n < 6 ? 1 : 2);
  ft_trials_free(&trials);
}
END_TEST

/* What the fake GPU computes is wrong, and said to be. */
START_TEST(finals_are_verified) {
  write_file("requests", "bf16 d64 hq4 nq256 causal\n");
  expect_in_folder("configs h200 4 %/requests", 0);
  write_file("list", output);
  expect_in_folder("compile h200 %/list 2 100", 0);
  expect_in_folder("run %/list %/trials 1 100 0", 0);
  expect_output("0 failed, 3 wrong");
  struct ft_trials trials = read_trials();
  ck_assert_int_eq(trials.row_count, 7);
  for (int n = 4; n < 7; n++) {
    ck_assert_int_eq(trials.rows[n].outcome, FT_OUTCOME_WRONG);
    ck_assert_ptr_nonnull(trials.rows[n].reason);
  }
  ft_trials_free(&trials);
  expect_in_folder("show %/trials %/requests", 0);
  ck_assert_int_eq(count_lines(output, "forward bf16 d64 hq4 nq256 causal\twrong\t"), 3);
  ck_assert_int_eq(count_lines(output, "forward bf16 d64 hq4 nq256 causal\tscreened\t"), 4);
}
END_TEST

START_TEST(kernels_that_are_not_there_are_not_compiled) {
  make_list(2);
  expect_in_folder("run %/list %/trials 0 100 0", 0);
  expect_output("0 requests, 0 timed");
  expect_message("request 0: ");
}
END_TEST

START_TEST(a_bad_list_is_named_with_its_line) {
  static const struct {
    const char *text, *tells;
  } bad[] = {{"R bf16 d64 nq256\nC no_family block_m=64\n", "line 2"},
             {"C mma_forward block_m=64\n", "before the first request"},
             {"# a comment\n\nR nothing\n", "line 3"},
             {"X\n", "neither"}};
  for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
    write_file("list", bad[n].text);
    expect_in_folder("compile h200 %/list 1 1", 2);
    expect_message(bad[n].tells);
  }
  expect_in_folder("run %/nothing %/trials 0 1 0", 2);
  expect_message("cannot be read");
  expect("", 2);
  expect_message("usage");
}
END_TEST

/* Trials as `fatune cache export` writes them, one of each config of the list: 100 us and more, 50
 * of the eighth, which is returned. */
static char *write_exported(void) {
  static char list[1 << 18], line[8192], all[1 << 18], fastest[1024];
  int count = 0;
  char *rest = NULL;
  read_file("list", list, sizeof list);
  strcpy(all, "# Run: recorded before\n");
  for (char *at = strtok_r(list, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
    if (at[0] != 'C') continue;
    at[strcspn(at, "\t")] = '\0';
    if (count == 7) snprintf(fastest, sizeof fastest, "%s", at + 2);
    snprintf(line, sizeof line,
             "bucket=\"forward bf16 d64 hq4 nq256 causal\" device=x/sm_90/132 policy=events-warm/3 "
             "config=\"%s\" "
             "outcome=screened request=\"forward bf16 d64 hq4 nq256 causal\" median_us=%d at=1\n",
             at + 2, count == 7 ? 50 : 100 + count);
    ck_assert_uint_lt(strlen(all) + strlen(line), sizeof all);
    strcat(all, line);
    count++;
  }
  write_file("exported", all);
  return fastest;
}

/* A search over times that were recorded finds the fastest of those that it tries. */
START_TEST(recorded_times_are_searched) {
  write_file("requests", "bf16 d64 hq4 nq256 causal\n");
  expect_in_folder("configs h200 12 %/requests", 0);
  write_file("list", output);
  const char *const fastest = write_exported();
  expect_in_folder("pack %/exported %/trials", 0);
  expect_output("12 trials");
  expect_in_folder("replay h200 %/trials 2 %/requests", 0);
  expect_output("\t100.0000\t50.0000\t");
  expect_output(fastest);
}
END_TEST

START_TEST(exported_trials_are_packed) {
  make_list(4);
  write_exported();
  expect_in_folder("pack %/exported %/trials", 0);
  expect_in_folder("pack %/exported %/trials",
                   0); /* of one run by its words, but told to be another */
  struct ft_trials trials = read_trials();
  ck_assert_int_eq(trials.row_count, 24);
  ck_assert_int_eq(trials.run_count, 2);
  ck_assert_str_eq(trials.heads[1].what, "recorded before");
  ck_assert_str_eq(trials.heads[1].date, "1970-01-01");
  ft_trials_free(&trials);
  write_file("exported", "bucket=x\n");
  expect_in_folder("pack %/exported %/trials", 2);
  expect_message("exported, line 1: ");
  expect_in_folder("pack %/nothing %/trials", 2);
  expect_message("cannot be read");
  expect_in_folder("pack %/exported %/exported", 2);
  expect_message("`record_many pack`");
  expect_in_folder("show %/exported %/requests", 2);
  expect_message("exported, line 1: ");
}
END_TEST

START_TEST(kinds_of_requests_are_drawn) {
  static char list[1 << 18];
  char command[8192];
  *strrchr(program, '/') = '\0';
  snprintf(command, sizeof command,
           "python3 '" FATUNE_SOURCE_DIR
           "/generator/model/fit/record_many.py' --build '%s' list --seed 3 --draws 600 "
           "--kinds 1 --sizes 2 --sizes-few 2 --kernels 3 --window 50 --out '%s/many' > '%s/out' "
           "2> '%s/err'",
           program, folder, folder, folder);
  ck_assert_int_eq(take_end("list", system(command)), 0);
  read_file("many", list, sizeof list);
  ck_assert_int_eq(count_lines(list, "# "), 2);
  ck_assert_int_eq(count_lines(list, "R "), 4);
  ck_assert_int_ge(count_lines(list, "C "), 12);
}
END_TEST

Suite *make_record_many_suite(void) {
  Suite *const suite = suite_create("record_many");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 120);
  tcase_add_checked_fixture(tests, set_up, end_program_test);
  tcase_add_test(tests, configs_are_listed_default_first);
  tcase_add_test(tests, kernels_are_compiled_once_and_timed);
  tcase_add_test(tests, a_run_goes_on_where_another_stopped);
  tcase_add_test(tests, finals_are_verified);
  tcase_add_test(tests, kernels_that_are_not_there_are_not_compiled);
  tcase_add_test(tests, a_bad_list_is_named_with_its_line);
  tcase_add_test(tests, recorded_times_are_searched);
  tcase_add_test(tests, exported_trials_are_packed);
  tcase_add_test(tests, kinds_of_requests_are_drawn);
  suite_add_tcase(suite, tests);
  return suite;
}
