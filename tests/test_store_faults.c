/* test_store_faults.c: whatever is wrong with files and folders, a look-up is a miss and one
 * warning, the process lives on, and nothing wrong is ever handed out. in -> out: bad files, bad
 * folders, full disks, crashes, flipped bits, many processes -> Check suite. */
#include "tests/suites.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cache/claims.h"
#include "cache/folders.h"
#include "cache/schema.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

static struct fixture fixture;

static void set_up(void) {
  fixture_open(&fixture);
}

static void tear_down(void) {
  ck_assert_int_eq(seteuid(getuid()), 0);
  fixture_close(&fixture);
}

/* Everything a store can be asked for works, from memory if need be; put_status is what the two
 * puts say. */
static void assert_lives_on(struct ft_store *store, int put_status) {
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 3, 10);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 30000), back;
  const struct ft_query query = {
      .request = &trial.request, .device = CLASS_H200, .templates = &trial.templates};
  struct ft_choice choice;
  struct ft_store_stats stats;
  for (int round = 0; round < 2; round++) {
    assert_status(ft_store_kernel_put(store, &kernel), put_status);
    assert_status(ft_store_trial_put(store, &trial), put_status);
    assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
    ck_assert(same_kernel(&kernel, &back));
    ft_kernel_free(&back);
    assert_ok(ft_store_choose(store, &query, &choice));
    ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
    assert_ok(ft_store_stats(store, &stats));
  }
  ft_kernel_free(&kernel);
}

/* -- what may lie at the path --------------------------------------------------------------- */

static const char LFS_POINTER[] = "version https://git-lfs.github.com/spec/v1\noid "
                                  "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32"
                                  "b1258daaa5e2ca24d17e2393\nsize 12345678901\n";

static const char *const obstacles[] = {"folder",      "pipe",       "socket", "link",
                                        "dangling",    "foreign",    "newer",  "others write",
                                        "application", "unfinished", "grown"};
/* Nobody can use these as they are. */
static const char *const wrecks[] = {"text",      "pointer", "noise",     "half",
                                     "no tables", "misread", "renumbered"};

/* Another application's file whose newest rows are in its write-ahead log only. */
static void place_unfinished(const char *path) {
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    sqlite3 *handle = NULL;
    sqlite3_open(path, &handle);
    sqlite3_exec(handle, "PRAGMA journal_mode = WAL; CREATE TABLE kernels (key, image);", NULL,
                 NULL, NULL);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

/* Of a version that is not there yet: with one table more, or with a letter changed by damage. */
static void place_version(const char *path, const char *sql) {
  for (int step = 1; step <= FT_SCHEMA_VERSION; step++) run_sql(path, ft_schema_step(step));
  run_sql(path, sql);
}

static void place(const char *kind, const char *path) {
  char beside[160];
  snprintf(beside, sizeof beside, "%s.real", path);
  if (strcmp(kind, "folder") == 0) ck_assert_int_eq(mkdir(path, 0700), 0);
  if (strcmp(kind, "pipe") == 0) ck_assert_int_eq(mkfifo(path, 0600), 0);
  if (strcmp(kind, "socket") == 0) ck_assert_int_eq(mknod(path, S_IFSOCK | 0600, 0), 0);
  if (strcmp(kind, "link") == 0) write_bytes(beside, "", 0);
  if (strcmp(kind, "link") == 0 || strcmp(kind, "dangling") == 0)
    ck_assert_int_eq(symlink(beside, path), 0);
  if (strcmp(kind, "text") == 0) write_bytes(path, "my shopping list\n", 17);
  if (strcmp(kind, "pointer") == 0) write_bytes(path, LFS_POINTER, sizeof LFS_POINTER - 1);
  if (strcmp(kind, "noise") == 0) {
    unsigned char noise[20000];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)dice_bits(&fixture.dice);
    write_bytes(path, noise, sizeof noise);
  }
  if (strcmp(kind, "half") == 0) write_bytes(path, "SQLite format 3\0\x10\x00", 18);
  if (strcmp(kind, "unfinished") == 0) place_unfinished(path);
  if (strcmp(kind, "application") == 0)
    run_sql(path, "PRAGMA journal_mode = WAL; CREATE TABLE kernels (key, image);");
  if (strcmp(kind, "foreign") == 0)
    run_sql(path, "PRAGMA application_id = 77; PRAGMA user_version = 1; CREATE TABLE t (x);");
  if (strcmp(kind, "newer") == 0)
    run_sql(path, "PRAGMA application_id = 0x46415455; PRAGMA user_version = 9;"
                  "CREATE TABLE kernels (key); CREATE TABLE trials (x);");
  if (strcmp(kind, "grown") == 0)
    place_version(path, "PRAGMA user_version = 34; CREATE TABLE more (x);");
  if (strcmp(kind, "renumbered") == 0) place_version(path, "PRAGMA user_version = 34");
  if (strcmp(kind, "misread") == 0)
    place_version(path, "PRAGMA user_version = 34; PRAGMA writable_schema = ON;"
                        "UPDATE sqlite_schema SET name = 'Trials_by_class', "
                        "sql = replace(sql, 'INDEX trials', 'INDEX Trials') "
                        "WHERE name = 'trials_by_class'");
  if (strcmp(kind, "no tables") == 0)
    run_sql(path,
            "PRAGMA application_id = 0x46415455; PRAGMA user_version = 1; CREATE TABLE t (x);");
  if (strcmp(kind, "others write") == 0) {
    struct ft_store *const store = open_store(&fixture);
    assert_lives_on(store, FT_OK);
    ft_store_close(store);
  }
}

START_TEST(obstacles_are_left_alone) {
  char path[128], other[128];
  ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  snprintf(other, sizeof other, "%s/tuning.db", fixture.folder);
  place(obstacles[_i], path);
  place(obstacles[_i], other);
  if (strcmp(obstacles[_i], "others write") == 0)
    ck_assert_int_eq(chmod(path, 0666) | chmod(other, 0622), 0);
  struct stat before, after;
  struct bytes content = {NULL, 0};
  ck_assert_int_eq(lstat(path, &before), 0);
  if (S_ISREG(before.st_mode)) content = read_bytes(path);

  struct ft_store *const store = open_store(&fixture);
  assert_lives_on(store, FT_E_CACHE);
  int64_t checked = 0, damaged = 0;
  assert_ok(verify_store(store, true, &checked, &damaged));
  if (strcmp(obstacles[_i], "dangling") != 0) ck_assert_int_ge(damaged, 2);
  ft_store_close(store);
  assert_warnings(&fixture, 2); /* one for each file */
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "kernels.db"));
  ck_assert_ptr_nonnull(strstr(fixture.warnings[1], "tuning.db"));

  ck_assert_int_eq(lstat(path, &after), 0);
  ck_assert_uint_eq(before.st_ino, after.st_ino);
  ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
  if (content.data) {
    struct bytes now = read_bytes(path);
    ck_assert_uint_eq(now.size, content.size);
    ck_assert_int_eq(memcmp(now.data, content.data, now.size), 0);
    free(now.data);
    free(content.data);
  }
  char log[160];
  snprintf(log, sizeof log, "%s-wal", path);
  ck_assert_int_eq(access(log, F_OK) == 0, strcmp(obstacles[_i], "unfinished") == 0);
  snprintf(log, sizeof log, "%s.real", path);
  if (access(log, F_OK) == 0) ck_assert_int_eq(stat(log, &after) | (int)after.st_size, 0);
}
END_TEST

START_TEST(wrecks_are_kept_and_replaced) {
  static const char *const names[] = {"tuning.db", "kernels.db"};
  char path[128], kept[160];
  struct bytes before[2];
  ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
  for (int kind = 0; kind < 2; kind++) {
    snprintf(path, sizeof path, "%s/%s", fixture.folder, names[kind]);
    place(wrecks[_i], path);
    chmod(path, 0600);
    before[kind] = read_bytes(path);
  }
  struct ft_store *store = open_store(&fixture);
  assert_lives_on(store, FT_E_CACHE);
  struct ft_store_verdict verdict;
  assert_ok(ft_store_verify(store, false, &verdict));
  ck_assert_int_eq(verdict.left, 2);
  ft_store_verdict_free(&verdict);
  assert_ok(ft_store_verify(store, true, &verdict));
  ck_assert_int_eq(verdict.damaged, 2);
  ck_assert_int_eq(verdict.left, 0);
  assert_warnings(&fixture, 2);
  for (int kind = 0; kind < 2; kind++) {
    snprintf(kept, sizeof kept, "%s/%s.damaged", fixture.folder, names[kind]);
    ck_assert_str_eq(verdict.mended[kind].kept, kept);
    struct bytes now = read_bytes(kept);
    ck_assert_uint_eq(now.size, before[kind].size);
    ck_assert_int_eq(memcmp(now.data, before[kind].data, now.size), 0);
    free(now.data);
    free(before[kind].data);
  }
  ft_store_verdict_free(&verdict);
  assert_lives_on(store, FT_OK); /* the store at hand, too */
  ft_store_close(store);
  store = open_store(&fixture);
  assert_ok(ft_store_verify(store, true, &verdict));
  ck_assert_int_eq(verdict.damaged, 0);
  ck_assert_int_eq(verdict.checked, 2);
  ft_store_verdict_free(&verdict);
  ft_store_close(store);
}
END_TEST

/* An empty file is what a crash right after its making leaves. */
START_TEST(an_empty_file_is_filled) {
  char path[128];
  ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  write_bytes(path, "", 0);
  chmod(path, 0600);
  struct ft_store *const store = open_store(&fixture);
  assert_lives_on(store, FT_OK);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* -- folders -------------------------------------------------------------------------------- */

static const char *const bad_folders[] = {"file", "open", "group", "below a file"};

START_TEST(bad_folders_are_not_used) {
  const char *const kind = bad_folders[_i];
  char inside[128];
  if (strcmp(kind, "file") == 0) write_bytes(fixture.folder, "x", 1);
  if (strcmp(kind, "below a file") == 0) {
    write_bytes(fixture.folder, "x", 1);
    strcat(fixture.folder, "/deeper");
  }
  if (strcmp(kind, "open") == 0 || strcmp(kind, "group") == 0) {
    ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
    chmod(fixture.folder, strcmp(kind, "open") == 0 ? 0707 : 0770);
  }
  struct ft_store *const store = open_store(&fixture);
  assert_lives_on(store, FT_E_CACHE);
  ft_store_close(store);
  assert_warnings(&fixture, 2);
  snprintf(inside, sizeof inside, "%s/kernels.db", fixture.folder);
  ck_assert_int_ne(access(inside, F_OK), 0);
}
END_TEST

START_TEST(no_home_is_one_warning) {
  static const char *const homes[] = {NULL, "", "relative"};
  unsetenv("XDG_CACHE_HOME");
  unsetenv("XDG_STATE_HOME");
  for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
    struct ft_store *store = NULL;
    const struct ft_store_options options = {.warn = note_warning, .payload = &fixture};
    if (homes[i])
      setenv("HOME", homes[i], 1);
    else
      unsetenv("HOME");
    assert_ok(ft_store_open(&store, &options));
    ck_assert_ptr_null(ft_store_tuning_path(store));
    assert_lives_on(store, FT_E_CACHE);
    struct ft_claim claim;
    ft_claim_open(&claim, store, &(struct ft_digest){{0}});
    ck_assert_int_eq(claim.file, -1);
    int64_t checked = 0, damaged = 0; /* of what is in memory */
    assert_ok(verify_store(store, true, &checked, &damaged));
    ck_assert(checked > 0 && damaged == 0);
    ft_store_close(store);
    assert_warnings(&fixture, (int)i + 1);
  }
}
END_TEST

/* Root may do anything, so this acts as another user where it can. A change of user makes a process
 * undumpable, which the leak checker does not survive. */
static bool become_nobody(void) {
  if (geteuid() != 0) return true;
  return chown(fixture.root, 65534, 65534) == 0 && seteuid(65534) == 0 &&
         prctl(PR_SET_DUMPABLE, 1) == 0;
}

START_TEST(a_read_only_folder_is_read) {
  if (!become_nobody()) return;
  struct ft_kernel kernel = make_kernel(&fixture.dice, 30000), back;
  struct ft_store *store = open_store(&fixture);
  assert_ok(ft_store_kernel_put(store, &kernel));
  ft_store_close(store);
  char path[128];
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  run_sql(path, "UPDATE kernels SET used = 0"); /* renewing it is not possible either */
  chmod(path, 0400);
  chmod(fixture.folder, 0500);
  store = open_store(&fixture);
  for (int round = 0; round < 2; round++) {
    assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
    ck_assert(same_kernel(&kernel, &back));
    ft_kernel_free(&back);
  }
  int64_t checked = 0, damaged = 0;
  assert_ok(verify_store(store, true, &checked, &damaged));
  ck_assert(checked == 1 && damaged == 0);
  assert_warnings(&fixture, 0); /* reading is no fault */
  assert_lives_on(store, FT_E_CACHE);
  int64_t deleted = 0;
  assert_status(ft_store_gc(store, 0, &deleted), FT_E_CACHE);
  ft_store_close(store);
  assert_warnings(&fixture, 2);
  chmod(fixture.folder, 0700);
  ft_kernel_free(&kernel);
  if (getuid() == 0) ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

START_TEST(a_folder_of_somebody_else_is_not_used) {
  if (geteuid() != 0) return; /* only root can give folders away */
  ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
  ck_assert_int_eq(chown(fixture.folder, 12345, 12345), 0);
  struct ft_store *const store = open_store(&fixture);
  assert_lives_on(store, FT_E_CACHE);
  ft_store_close(store);
  assert_warnings(&fixture, 2);
}
END_TEST

START_TEST(local_file_systems_are_known) {
  ck_assert(!ft_folder_is_local("/proc"));
  ck_assert(!ft_folder_is_local("/no/such/folder"));
  if (access("/dev/shm", W_OK) == 0) ck_assert(ft_folder_is_local("/dev/shm"));
}
END_TEST

/* -- full disk ------------------------------------------------------------------------------ */

/* A limit on the size of files stands in for a full disk: writes fail half-way. */
static void limit_files(rlim_t bytes) {
  signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {bytes, RLIM_INFINITY};
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(a_full_disk_is_survived) {
  static const rlim_t limits[] = {0, 100, 4096, 8192, 20000, 50000, 60000, 90000, 150000};
  struct ft_kernel before = make_kernel(&fixture.dice, 30000), back;
  struct ft_store *store = open_store(&fixture);
  if (_i > 0) assert_ok(ft_store_kernel_put(store, &before)); /* 0: not even the files are there */
  ft_store_close(store);
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    fixture.warning_count = 0;
    store = open_store(&fixture);
    struct ft_kernel kernel = make_kernel(&fixture.dice, 100000);
    limit_files(limits[i]);
    for (int round = 0; round < 2; round++) {
      const int status = ft_store_kernel_put(store, &kernel);
      ck_assert_msg(status == FT_E_CACHE || status == FT_OK, "%d %s", status, ft_detail());
      assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
      ck_assert(same_kernel(&kernel, &back));
      ft_kernel_free(&back);
      if (limits[i] < 100000) ck_assert_int_eq(status, FT_E_CACHE);
    }
    ft_kernel_free(&kernel);
    ck_assert_int_le(fixture.warning_count, 2); /* could not be read, could not be written */
    if (limits[i] < 100000) ck_assert_int_ge(fixture.warning_count, 1);
    ft_store_close(store);
    limit_files(RLIM_INFINITY);
  }
  fixture.warning_count = 0;
  store = open_store(&fixture);
  if (_i > 0) {
    assert_ok(ft_store_kernel_get(store, &before.key, &back));
    ck_assert(same_kernel(&before, &back));
    ft_kernel_free(&back);
  }
  assert_lives_on(store, FT_OK);
  int64_t checked = 0, damaged = -1;
  assert_ok(verify_store(store, false, &checked, &damaged));
  ck_assert_int_eq(damaged, 0);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
  ft_kernel_free(&before);
}
END_TEST

Suite *make_store_faults_suite(void) {
  Suite *const suite = suite_create("store_faults");
  TCase *const tests = tcase_create("faults");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, obstacles_are_left_alone, 0,
                      (int)(sizeof obstacles / sizeof obstacles[0]));
  tcase_add_loop_test(tests, wrecks_are_kept_and_replaced, 0,
                      (int)(sizeof wrecks / sizeof wrecks[0]));
  tcase_add_test(tests, an_empty_file_is_filled);
  tcase_add_loop_test(tests, bad_folders_are_not_used, 0,
                      (int)(sizeof bad_folders / sizeof bad_folders[0]));
  tcase_add_test(tests, no_home_is_one_warning);
  tcase_add_test(tests, a_read_only_folder_is_read);
  tcase_add_test(tests, a_folder_of_somebody_else_is_not_used);
  tcase_add_test(tests, local_file_systems_are_known);
  tcase_add_loop_test(tests, a_full_disk_is_survived, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
