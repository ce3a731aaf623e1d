/* test_program_kill.c: `fatune tune` killed at any moment. in -> out: a search with eight jobs on
 * the fake NVRTC, kill -9 -> what is in the stores, and what the next run makes of it. */
#include "tests/run_program.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

#include <sys/prctl.h>

#include <dirent.h>
#include <signal.h>

enum { JOBS = 8 };

static char compiles[128]; /* a byte a compile, written as it begins */

static void set_up(void) {
  begin_program_test();
  snprintf(compiles, sizeof compiles, "%s/compiles", folder);
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  setenv("FATUNE_FAKE_COMPILES", compiles, 1);
  setenv("FATUNE_FAKE_COMPILE_MS", "4", 1);
}

static int64_t size_of(const char *path) {
  struct stat state;
  return stat(path, &state) == 0 ? (int64_t)state.st_size : 0;
}

static pid_t start_search(void) {
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    const int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    execl(program, program, "--gpu", "a100", "--effort", "normal", "--jobs", "8", "d64", "nq128",
          (char *)NULL);
    _exit(127);
  }
  return child;
}

/* Rows of the store; 0 where there is none yet. */
static int64_t rows(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/tuning.db", folder);
  return access(path, F_OK) == 0 ? number_of(path, "SELECT count(*) FROM trials") : 0;
}

/* A search that was finished would leave nothing to do. */
static void start_over_when_done(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/tuning.db", folder);
  if (rows() > 40) run_sql(path, "DELETE FROM trials");
}

/* Stores that a process was making when it was killed. */
static void leave_unfinished(void) {
  static const char *const names[] = {"tuning.db", "kernels.db"};
  char path[128];
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s.unfinished-a1B2c3", folder, names[i]);
    write_bytes(path, "SQLite format 3", 16);
  }
}

static int files_named(const char *text) {
  int count = 0;
  DIR *const all = opendir(folder);
  ck_assert_ptr_nonnull(all);
  for (const struct dirent *entry; (entry = readdir(all));)
    count += strstr(entry->d_name, text) != NULL;
  closedir(all);
  return count;
}

START_TEST(a_killed_search_loses_a_row_a_job) {
  struct dice dice = dice_new();
  int64_t lost = 0, most = 0;
  int killed = 0;
  prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans are waited for here */
  for (int round = 0; round < (tests_are_slow() ? 1000 : 12); round++) {
    start_over_when_done();
    const int64_t begun = size_of(compiles), kept = rows();
    const pid_t child = start_search();
    if (round % 2) /* while it compiles, on a slow machine too */
      for (int wait = 0; wait < 1000 && size_of(compiles) == begun; wait++) usleep(5000);
    usleep((useconds_t)dice_below(&dice, round % 2 ? 60000 : 250000));
    kill(child, SIGKILL);
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    while (waitpid(-1, NULL, 0) > 0) continue; /* its worker, which dies with it */
    killed += WIFSIGNALED(status);
    const int64_t unfinished = size_of(compiles) - begun - (rows() - kept);
    ck_assert_msg(unfinished <= JOBS, "seed %llu, round %d: %lld compiles have no row",
                  (unsigned long long)dice.seed, round, (long long)unfinished);
    lost += unfinished;
    if (unfinished > most) most = unfinished;
  }
  ck_assert_int_gt(killed, 3);
  ck_assert_int_gt(lost, 0);
  leave_unfinished();
  expect("tune d64 nq64 --gpu a100 --effort quick --shard 1/40 -q", 0);
  ck_assert_int_eq(files_named("unfinished"), 0);
  expect("cache verify", 0);
}
END_TEST

/* Folders to compile in, in this one. */
static int scratch_folders(const char *temporary) {
  int count = 0;
  DIR *const all = opendir(temporary);
  ck_assert_ptr_nonnull(all);
  for (const struct dirent *entry; (entry = readdir(all));)
    count += strncmp(entry->d_name, "fatune-kernel-", 14) == 0;
  closedir(all);
  return count;
}

/* A compiler that takes its time. */
static void use_slow_compiler(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/g++", folder);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs("#!/bin/sh\ncase \"$*\" in *kernel.cc*) sleep 2 ;; esac\nexec g++ \"$@\"\n", file);
  ck_assert_int_eq(fclose(file), 0);
  ck_assert_int_eq(chmod(path, 0700), 0);
  setenv("FATUNE_CXX", path, 1);
}

START_TEST(a_signal_leaves_no_folder_after_the_next_run) {
  static const int signals[] = {SIGTERM, SIGKILL};
  char temporary[128];
  snprintf(temporary, sizeof temporary, "%s/%d", folder, _i);
  ck_assert_int_eq(mkdir(temporary, 0700), 0);
  setenv("TMPDIR", temporary, 1);
  use_slow_compiler();
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    execl(program, program, "verify", "--gpu", "emulator", "d16", "nq16", (char *)NULL);
    _exit(127);
  }
  for (int round = 0; round < 4000 && scratch_folders(temporary) == 0; round++) usleep(5000);
  kill(child, signals[_i]);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  ck_assert_int_le(scratch_folders(temporary), 1);
  unsetenv("FATUNE_CXX");
  expect("verify --gpu emulator d16 nq16", 0);
  ck_assert_int_eq(scratch_folders(temporary), 0);
}
END_TEST

Suite *make_program_kill_suite(void) {
  Suite *const suite = suite_create("program_kill");
  TCase *const tests = tcase_create("kill");
  tcase_set_timeout(tests, tests_are_slow() ? 900 : 60);
  tcase_add_checked_fixture(tests, set_up, end_program_test);
  tcase_add_test(tests, a_killed_search_loses_a_row_a_job);
  tcase_add_loop_test(tests, a_signal_leaves_no_folder_after_the_next_run, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
