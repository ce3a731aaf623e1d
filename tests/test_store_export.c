/* test_store_export.c: a file to ship holds all that it should, or is not written.
 * in -> out: stores that can be read, in part, or not at all -> files -> Check suite. */
#include "tests/suites.h"

#include <glob.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/fault_files.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"
#define SMALLER "forward bf16 d64 hq16 hkv16 b2 nq512 nk512"

static struct fixture fixture;
static char shipped[128];

static void put_pair(struct ft_store *store, const char *problem, int config) {
  struct ft_trial trial = make_trial(problem, CLASS_H200, config, 100);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 9000);
  trial.kernel = kernel.key;
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_trial_put(store, &trial));
  ft_kernel_free(&kernel);
}

static void set_up(void) {
  fixture_open(&fixture);
  snprintf(shipped, sizeof shipped, "%s/sm_90.fatune", fixture.root);
  struct ft_store *const store = open_store(&fixture);
  put_pair(store, PROBLEM, 1);
  put_pair(store, SMALLER, 2);
  ft_store_close(store);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static int export_all(struct ft_store *store, struct ft_export *export) {
  *export = (struct ft_export){.may_be_empty = false};
  return ft_store_export(store, "sm_90", NULL, shipped, export);
}

static void assert_same_file(const struct bytes *before, long n) {
  struct bytes now = read_bytes(shipped);
  ck_assert_msg(now.size == before->size && memcmp(now.data, before->data, now.size) == 0,
                "operation %ld: the file was replaced", n);
  free(now.data);
}

static void assert_nothing_left(void) {
  char pattern[160];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s.*", shipped);
  ck_assert_int_eq(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
  globfree(&found);
}

/* Every n-th file operation fails: the export is whole, or fails and leaves the good file there. */
START_TEST(a_read_error_replaces_no_good_file) {
  const int step = tests_are_slow() ? 1 : 3;
  long n = 1 + dice_below(&fixture.dice, step);
  int failures = 0;
  struct ft_export export;
  struct ft_store *store = open_store(&fixture);
  assert_ok(export_all(store, &export));
  ck_assert_int_eq(export.trials, 2);
  ck_assert_int_eq(export.kernels, 2);
  ft_store_close(store);
  struct bytes before = read_bytes(shipped);
  fault_files_begin();
  for (bool fired = true; fired; n += step) {
    store = open_store(&fixture);
    fixture.warning_count = 0;
    fault_files_arm(n, _i == 1, 0);
    const int status = export_all(store, &export);
    fired = fault_files.failed > 0;
    fault_files_arm(0, false, 0);
    ft_store_close(store);
    failures += status != FT_OK;
    if (status == FT_OK) ck_assert_msg(export.trials == 2 && export.kernels == 2, "%ld", n);
    assert_same_file(&before, n); /* equal data makes equal files */
    assert_nothing_left();
  }
  ck_assert_int_gt(failures, 10);
  free(before.data);
}
END_TEST

/* A store that cannot be opened, or has a row that cannot be read, is not an empty one. */
START_TEST(a_damaged_store_ships_nothing) {
  char path[160];
  struct ft_export export;
  struct ft_store *store = open_store(&fixture);
  assert_ok(export_all(store, &export));
  ft_store_close(store);
  struct bytes before = read_bytes(shipped);
  snprintf(path, sizeof path, "%s/%s", fixture.folder, _i % 2 ? "tuning.db" : "kernels.db");
  if (_i < 2) write_bytes(path, "not a database at all", 21);
  if (_i == 2) run_sql(path, "UPDATE kernels SET image = zeroblob(9000) WHERE id = 1");
  if (_i == 3) run_sql(path, "UPDATE trials SET text = text || ' ' WHERE id = 1");
  store = open_store(&fixture);
  for (int round = 0; round < (_i == 2 ? 1 : 2);
       round++) { /* a damaged kernel is deleted at once */
    assert_status(export_all(store, &export), FT_E_CACHE);
    assert_same_file(&before, round);
  }
  ft_store_close(store);
  assert_nothing_left();
  free(before.data);
}
END_TEST

/* As damage may leave them: they are of no bucket that could be shipped. */
START_TEST(rows_without_a_name_are_passed_over) {
  char path[160];
  struct ft_export export;
  snprintf(path, sizeof path, "%s/tuning.db", fixture.folder);
  run_sql_loosely(path,
                  "INSERT INTO trials (identity, bucket, class, device, target, policy, outcome, "
                  "at, templates, text) SELECT x'01', NULL, class, device, target, policy, "
                  "outcome, at, templates, text FROM trials WHERE id = 1;"
                  "INSERT INTO trials (identity, bucket, class, device, target, policy, outcome, "
                  "at, templates, text) SELECT x'02', bucket, class, NULL, target, policy, "
                  "outcome, at, templates, text FROM trials WHERE id = 1");
  struct ft_store *const store = open_store(&fixture);
  assert_ok(export_all(store, &export));
  ck_assert_int_eq(export.trials, 2);
  ft_store_close(store);
}
END_TEST

/* Lines that fill no buffer are written when the file is closed, others before. */
START_TEST(a_full_disk_ships_no_lines) {
  struct ft_export export = {.may_be_empty = false};
  struct rlimit before;
  char lines[160];
  snprintf(lines, sizeof lines, "%s/lines.trials", fixture.root);
  struct ft_store *const store = open_store(&fixture);
  for (int i = 0; i < 20 * _i; i++) {
    struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
    trial.at += i;
    assert_ok(ft_store_trial_put(store, &trial));
  }
  assert_ok(export_all(store, &export)); /* what it reads is open from here on */
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, before.rlim_max}), 0);
  const int status = ft_store_export(store, "sm_90", NULL, lines, &export);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert_int_eq(status, FT_E_CACHE);
  ck_assert_int_ne(access(lines, F_OK), 0);
  assert_ok(ft_store_export(store, "sm_90", NULL, lines, &export));
  ck_assert_int_ge(export.trials, 2 + 19 * _i);
  ft_store_close(store);
}
END_TEST

START_TEST(a_link_is_not_replaced) {
  struct ft_export export;
  char target[160];
  snprintf(target, sizeof target, "%s/elsewhere", fixture.root);
  ck_assert_int_eq(symlink(target, shipped), 0);
  struct ft_store *const store = open_store(&fixture);
  assert_status(export_all(store, &export), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "it is a link"));
  ck_assert_int_ne(access(target, F_OK), 0);
  ft_store_close(store);
}
END_TEST

START_TEST(missing_kernels_are_counted) {
  struct ft_export export;
  struct ft_store *const store = open_store(&fixture);
  int64_t deleted = 0;
  assert_ok(ft_store_gc(store, 0, &deleted));
  ck_assert_int_eq(deleted, 2);
  assert_ok(export_all(store, &export));
  ck_assert_int_eq(export.trials, 2);
  ck_assert_int_eq(export.kernels, 0);
  ck_assert_int_eq(export.missing, 2);
  ft_store_close(store);
}
END_TEST

START_TEST(nothing_is_shipped_only_if_asked_for) {
  struct ft_export export = {.may_be_empty = false};
  struct ft_store *const store = open_store(&fixture);
  assert_status(ft_store_export(store, "sm_75", NULL, shipped, &export), FT_E_NOT_FOUND);
  ck_assert_int_ne(access(shipped, F_OK), 0);
  export.may_be_empty = true;
  assert_ok(ft_store_export(store, "sm_75", NULL, shipped, &export));
  ck_assert_int_eq(export.trials, 0);
  ck_assert_int_eq(access(shipped, F_OK), 0);
  ft_store_close(store);
}
END_TEST

static void leave(const char *name, time_t seconds_ago) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", fixture.root, name);
  write_bytes(path, "x", 1);
  const struct timespec times[2] = {{time(NULL) - seconds_ago, 0}, {time(NULL) - seconds_ago, 0}};
  ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_there(const char *name) {
  char path[256];
  struct stat state;
  snprintf(path, sizeof path, "%s/%s", fixture.root, name);
  return lstat(path, &state) == 0;
}

/* Of those who were killed: all that have such a name when nobody else makes a file in the folder,
 * else those that nobody has written to for long. _i: what
 * somebody does. Whoever sweeps is waited for, but not for ever. */
enum work { NOBODY_AT_WORK, MAKING, SWEEPING, SWEPT_SOON };

static pid_t lock_folder(enum work work, int folder) {
  if (work == MAKING) ck_assert_int_eq(flock(folder, LOCK_SH), 0);
  if (work == SWEEPING) ck_assert_int_eq(flock(folder, LOCK_EX), 0);
  if (work != SWEPT_SOON) return 0;
  ck_assert_int_eq(flock(folder, LOCK_EX), 0);
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    usleep(30000);
    flock(folder, LOCK_UN);
    _exit(0);
  }
  return child;
}

START_TEST(unfinished_files_are_swept) {
  static const struct {
    const char *name;
    time_t age;
    bool swept;
  } files[] = {{"sm_90.fatune.unfinished-a1B2c3", 700, true},
               {"sm_90.fatune.unfinished-a1B2c3-journal", 700, true},
               {"sm_90.fatune.unfinished-a1B2c4", 500, true},
               {"sm_90.fatune.unfinished-a1B2c", 700, false},
               {"sm_90.fatune.unfinished-a1B2c34", 700, false},
               {"sm_90.fatune.unfinished-a1-2c3", 700, false},
               {"sm_90.fatune.backup", 7000, false},
               {"sm_80.fatune.unfinished-a1B2c3", 700, false},
               {"xsm_90.fatune.unfinished-a1B2c3", 700, false}};
  char file[256], link[300];
  snprintf(file, sizeof file, "%s/sm_90.fatune", fixture.root);
  snprintf(link, sizeof link, "%s.unfinished-a1B2c5", file);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) leave(files[i].name, files[i].age);
  ck_assert_int_eq(symlink("/nowhere", link), 0);
  leave("sm_90.fatune.unfinished-a1B2c6", 700);
  snprintf(link, sizeof link, "%s.unfinished-a1B2c6", file);
  if (geteuid() == 0) ck_assert_int_eq(chown(link, 65534, 65534), 0);
  const int at_work = open(fixture.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ck_assert_int_ge(at_work, 0);
  const pid_t child = lock_folder((enum work)_i, at_work);
  struct ft_store *const store = open_store(&fixture);
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
  assert_ok(ft_store_trial_put(store, &trial));
  assert_ok(export_store(store, "sm_90", NULL, file, NULL, NULL));
  ft_store_close(store);
  if (child) ck_assert_int_eq(waitpid(child, NULL, 0), child);
  if (!_i) ck_assert_int_eq(flock(at_work, LOCK_EX | LOCK_NB), 0); /* the export's lock is gone */
  close(at_work);
  if (geteuid() == 0) ck_assert(is_there("sm_90.fatune.unfinished-a1B2c6")); /* another user's */
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    ck_assert_msg(is_there(files[i].name) != (files[i].swept && (!_i || files[i].age > 600)), "%s",
                  files[i].name);
  ck_assert(is_there("sm_90.fatune.unfinished-a1B2c5"));
}
END_TEST

Suite *make_store_export_suite(void) {
  Suite *const suite = suite_create("store_export");
  TCase *const tests = tcase_create("export");
  tcase_set_timeout(tests, 120);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, a_read_error_replaces_no_good_file, 0, 2);
  tcase_add_loop_test(tests, a_damaged_store_ships_nothing, 0, 4);
  tcase_add_test(tests, rows_without_a_name_are_passed_over);
  tcase_add_loop_test(tests, a_full_disk_ships_no_lines, 0, 2);
  tcase_add_test(tests, a_link_is_not_replaced);
  tcase_add_test(tests, missing_kernels_are_counted);
  tcase_add_test(tests, nothing_is_shipped_only_if_asked_for);
  tcase_add_loop_test(tests, unfinished_files_are_swept, NOBODY_AT_WORK, SWEPT_SOON + 1);
  suite_add_tcase(suite, tests);
  return suite;
}
