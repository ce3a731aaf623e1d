/* test_store_faults.c: whatever is wrong with files and folders, a look-up is a miss and one warning,
 * the process lives on, and nothing wrong is ever handed out.
 * in -> out: bad files, bad folders, full disks, crashes, flipped bits, many processes -> Check suite. */
#include "tests/suites.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cache/folders.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

static struct fixture fixture;

static void set_up(void) {
  fixture_open(&fixture);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

/* Everything a store can be asked for works, from memory if need be; put_status is what the two puts
 * say. */
static void assert_lives_on(struct ft_store *store, int put_status) {
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 3, 10);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 30000), back;
  const struct ft_query query = {.request = &trial.request,
                                 .device = CLASS_H200,
                                 .templates = &trial.templates};
  struct ft_choice choice;
  struct ft_store_stats stats;
  for (int round = 0; round < 2; round++) {
    assert_status(ft_store_kernel_put(store, &kernel), put_status);
    assert_status(ft_store_trial_put(store, &trial), put_status);
    assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
    ck_assert(same_kernel(&kernel, &back));
    ft_kernel_free(&back);
    assert_ok(ft_store_kernel_of_source(store, &kernel.source, NULL, &back));
    ft_kernel_free(&back);
    assert_ok(ft_store_choose(store, &query, &choice));
    ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
    assert_ok(ft_store_stats(store, &stats));
  }
  ft_kernel_free(&kernel);
}

/* -- what may lie at the path --------------------------------------------------------------- */

static const char LFS_POINTER[] =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32"
    "b1258daaa5e2ca24d17e2393\nsize 12345678901\n";

static const char *const obstacles[] = {"folder",  "pipe",         "socket",  "link",
                                        "dangling", "text",        "pointer", "noise",
                                        "half",    "application",  "foreign", "newer",
                                        "no tables", "others write"};

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
  if (strcmp(kind, "application") == 0)
    run_sql(path, "PRAGMA journal_mode = WAL; CREATE TABLE kernels (key, image);");
  if (strcmp(kind, "foreign") == 0)
    run_sql(path, "PRAGMA application_id = 77; PRAGMA user_version = 1; CREATE TABLE t (x);");
  if (strcmp(kind, "newer") == 0)
    run_sql(path, "PRAGMA application_id = 0x46415455; PRAGMA user_version = 9;"
                  "CREATE TABLE kernels (key); CREATE TABLE trials (x);");
  if (strcmp(kind, "no tables") == 0)
    run_sql(path, "PRAGMA application_id = 0x46415455; PRAGMA user_version = 1; CREATE TABLE t (x);");
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
  assert_ok(ft_store_verify(store, true, &checked, &damaged));
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
  ck_assert_int_ne(access(log, F_OK), 0);
  snprintf(log, sizeof log, "%s.real", path);
  if (access(log, F_OK) == 0) ck_assert_int_eq(stat(log, &after) | (int)after.st_size, 0);
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
    ft_store_close(store);
    assert_warnings(&fixture, (int)i + 1);
  }
}
END_TEST

/* Root may do anything, so these act as another user where they can. */
static bool become_nobody(void) {
  if (geteuid() != 0) return true;
  return chown(fixture.root, 65534, 65534) == 0 && seteuid(65534) == 0;
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
  assert_warnings(&fixture, 0); /* reading is no fault */
  assert_lives_on(store, FT_E_CACHE);
  int64_t deleted = 0;
  assert_status(ft_store_gc(store, 0, &deleted), FT_E_CACHE);
  ft_store_close(store);
  assert_warnings(&fixture, 2);
  chmod(fixture.folder, 0700);
  ft_kernel_free(&kernel);
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
  assert_ok(ft_store_verify(store, false, &checked, &damaged));
  ck_assert_int_eq(damaged, 0);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
  ft_kernel_free(&before);
}
END_TEST

/* -- damage --------------------------------------------------------------------------------- */

START_TEST(a_damaged_kernel_is_forgotten_once) {
  struct ft_kernel kernel = make_kernel(&fixture.dice, 30000), back;
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_kernel_put(store, &kernel));
  const char *const path = ft_store_kernels_path(store);
  static const char *const spoilers[] = {
      "UPDATE kernels SET image = zeroblob(30000)", "UPDATE kernels SET text = 'kernel sm_90'",
      "UPDATE kernels SET log = 'other'", "UPDATE kernels SET identity = zeroblob(32)"};
  run_sql(path, spoilers[_i]);
  int64_t checked = 0, damaged = 0;
  assert_ok(ft_store_verify(store, false, &checked, &damaged));
  ck_assert_int_eq(checked, 1);
  ck_assert_int_eq(damaged, 1);
  for (int round = 0; round < 3; round++)
    assert_status(ft_store_kernel_get(store, &kernel.key, &back), FT_E_NOT_FOUND);
  assert_warnings(&fixture, 1);
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM kernels"), 0);
  assert_ok(ft_store_kernel_put(store, &kernel)); /* compiled anew */
  assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
  ft_kernel_free(&back);
  ft_store_close(store);
  ft_kernel_free(&kernel);
}
END_TEST

START_TEST(a_kernel_under_a_wrong_key_is_not_handed_out) {
  struct ft_kernel a = make_kernel(&fixture.dice, 300), b = make_kernel(&fixture.dice, 300), back;
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_kernel_put(store, &a));
  assert_ok(ft_store_kernel_put(store, &b));
  const char *const path = ft_store_kernels_path(store);
  run_sql(path, "CREATE TEMP TABLE t AS SELECT key FROM kernels WHERE id = 2;"
                "DELETE FROM kernels WHERE id = 2;"
                "UPDATE kernels SET key = (SELECT key FROM t) WHERE id = 1");
  assert_status(ft_store_kernel_get(store, &b.key, &back), FT_E_NOT_FOUND);
  assert_warnings(&fixture, 1);
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM kernels"), 0);
  ft_store_close(store);
  ft_kernel_free(&a);
  ft_kernel_free(&b);
}
END_TEST

START_TEST(repair_deletes_damaged_kernels_only) {
  enum { COUNT = 6 };
  struct ft_kernel kernels[COUNT], back;
  struct ft_store *const store = open_store(&fixture);
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 3, 10);
  assert_ok(ft_store_trial_put(store, &trial));
  for (int i = 0; i < COUNT; i++) {
    kernels[i] = make_kernel(&fixture.dice, 20000);
    assert_ok(ft_store_kernel_put(store, &kernels[i]));
  }
  run_sql(ft_store_kernels_path(store), "UPDATE kernels SET image = zeroblob(20000) WHERE id IN (2, 5)");
  run_sql(ft_store_tuning_path(store), "UPDATE trials SET text = text || ' '");
  int64_t checked = 0, damaged = 0;
  assert_ok(ft_store_verify(store, true, &checked, &damaged));
  ck_assert_int_eq(checked, COUNT + 1);
  ck_assert_int_eq(damaged, 3);
  assert_ok(ft_store_verify(store, true, &checked, &damaged));
  ck_assert_int_eq(checked, COUNT - 2 + 1);
  ck_assert_int_eq(damaged, 1); /* the trial is not ours to delete */
  for (int i = 0; i < COUNT; i++) {
    const bool gone = i == 1 || i == 4;
    assert_status(ft_store_kernel_get(store, &kernels[i].key, &back), gone ? FT_E_NOT_FOUND : FT_OK);
    if (!gone) ft_kernel_free(&back);
    ft_kernel_free(&kernels[i]);
  }
  ft_store_close(store);
}
END_TEST

/* Flipped bits, zeroed pages, cut ends: an image is right or it is not handed out; and a repair makes
 * the store usable again. */
static void corrupt(struct bytes *file) {
  struct dice *const dice = &fixture.dice;
  const int kind = dice_below(dice, 4);
  if (kind == 0) file->size = (size_t)dice_below(dice, (int)file->size);
  if (kind == 1) {
    const size_t page = 8192 * (size_t)dice_below(dice, (int)(file->size / 8192));
    memset(file->data + page, 0, 8192);
  }
  const int flips = kind < 2 ? 0 : kind == 2 ? 1 : 200;
  for (int i = 0; i < flips; i++)
    file->data[dice_below(dice, (int)file->size)] ^= (unsigned char)(1 << dice_below(dice, 8));
}

START_TEST(corrupted_files_never_give_wrong_images) {
  enum { COUNT = 5, COPIES = 100 };
  struct ft_kernel kernels[COUNT], back;
  struct ft_store *store = open_store(&fixture);
  for (int i = 0; i < COUNT; i++) {
    kernels[i] = make_kernel(&fixture.dice, 20000);
    assert_ok(ft_store_kernel_put(store, &kernels[i]));
  }
  char path[256], damaged_path[300];
  snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
  snprintf(damaged_path, sizeof damaged_path, "%s.damaged", path);
  ft_store_close(store);
  const struct bytes sound = read_bytes(path);
  int served = 0, missed = 0;
  for (int copy = 0; copy < COPIES; copy++) {
    struct bytes spoiled = {malloc(sound.size), sound.size};
    memcpy(spoiled.data, sound.data, sound.size);
    corrupt(&spoiled);
    write_bytes(path, spoiled.data, spoiled.size);
    fixture.warning_count = 0;
    store = open_store(&fixture);
    for (int i = 0; i < 2 * COUNT; i++) {
      struct ft_kernel *const wanted = &kernels[i % COUNT];
      const int status = i < COUNT
                             ? ft_store_kernel_get(store, &wanted->key, &back)
                             : ft_store_kernel_of_source(store, &wanted->source, NULL, &back);
      ck_assert_msg(status == FT_OK || status == FT_E_NOT_FOUND, "seed %llu: %d %s",
                    (unsigned long long)fixture.dice.seed, status, ft_detail());
      *(status == FT_OK ? &served : &missed) += 1;
      if (status != FT_OK) continue;
      ck_assert_msg(same_kernel(wanted, &back), "seed %llu", (unsigned long long)fixture.dice.seed);
      ft_kernel_free(&back);
    }
    int64_t checked = 0, damaged = 0;
    assert_ok(ft_store_verify(store, true, &checked, &damaged));
    ft_store_close(store);
    ck_assert_int_le(fixture.warning_count, 4);
    free(spoiled.data);
    unlink(damaged_path);
  }
  ck_assert_int_gt(served, COPIES); /* or the test shows nothing */
  ck_assert_int_gt(missed, COPIES / 2);
  free(sound.data);
  for (int i = 0; i < COUNT; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

START_TEST(a_file_of_broken_pages_is_set_aside) {
  struct ft_store *store = open_store(&fixture);
  char path[256], aside[300];
  for (int i = 0; i < 20; i++) {
    struct ft_kernel kernel = make_kernel(&fixture.dice, 20000);
    assert_ok(ft_store_kernel_put(store, &kernel));
    ft_kernel_free(&kernel);
  }
  snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
  snprintf(aside, sizeof aside, "%s.damaged", path);
  ft_store_close(store);
  struct bytes file = read_bytes(path);
  memset(file.data + 8192, 0xA5, 8192 * 6);
  write_bytes(path, file.data, file.size);
  free(file.data);
  store = open_store(&fixture);
  int64_t checked = 0, damaged = 0;
  assert_ok(ft_store_verify(store, false, &checked, &damaged));
  ck_assert_int_gt(damaged, 0);
  ck_assert_int_eq(access(aside, F_OK), -1);
  assert_ok(ft_store_verify(store, true, &checked, &damaged));
  ck_assert_int_eq(access(aside, F_OK), 0);
  assert_lives_on(store, FT_OK);
  assert_ok(ft_store_verify(store, false, &checked, &damaged));
  ck_assert_int_eq(damaged, 0);
  ft_store_close(store);
}
END_TEST

/* -- processes ------------------------------------------------------------------------------ */

/* Many processes make and fill the same new store at once: the race for the write-ahead log and for
 * the schema is part of the test. Exit status: failures. */
static int write_rows(int number, int rows) {
  struct ft_store *const store = open_store(&fixture);
  struct dice dice = fixture.dice;
  int failures = 0;
  dice.state += (uint64_t)(number + 1) * 7919;
  for (int i = 0; i < rows; i++) {
    struct ft_kernel kernel = make_kernel(&dice, 40000), back;
    struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 10 + number);
    if (ft_store_kernel_put(store, &kernel) != FT_OK) failures++;
    if (ft_store_trial_put(store, &trial) != FT_OK) failures++;
    if (ft_store_kernel_get(store, &kernel.key, &back) == FT_OK)
      ft_kernel_free(&back);
    else
      failures++;
    ft_kernel_free(&kernel);
  }
  ft_store_close(store);
  return failures + fixture.warning_count;
}

START_TEST(many_processes_share_one_folder) {
  enum { PROCESSES = 12, ROWS = 15 };
  pid_t children[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    ck_assert_int_ge(children[i], 0);
    if (children[i] == 0) _exit(write_rows(i, ROWS));
  }
  for (int i = 0; i < PROCESSES; i++) {
    int status = 0;
    ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: status %d", i, status);
  }
  struct ft_store *const store = open_store(&fixture);
  struct ft_store_stats stats;
  int64_t checked = 0, damaged = -1;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.kernels, PROCESSES * ROWS);
  ck_assert_int_eq(stats.trials, PROCESSES * ROWS);
  assert_ok(ft_store_verify(store, false, &checked, &damaged));
  ck_assert_int_eq(checked, 2 * PROCESSES * ROWS);
  ck_assert_int_eq(damaged, 0);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(first_openings_may_race) {
  enum { PROCESSES = 16, ROUNDS = 6 };
  for (int round = 0; round < ROUNDS; round++) {
    pid_t children[PROCESSES];
    snprintf(fixture.folder, sizeof fixture.folder, "%s/round%d", fixture.root, round);
    for (int i = 0; i < PROCESSES; i++) {
      children[i] = fork();
      ck_assert_int_ge(children[i], 0);
      if (children[i] == 0) _exit(write_rows(i, 1));
    }
    for (int i = 0; i < PROCESSES; i++) {
      int status = 0;
      ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
      ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    }
    char path[160];
    snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
    ck_assert_int_eq(number_of(path, "SELECT count(*) FROM kernels"), PROCESSES);
    snprintf(path, sizeof path, "%s/tuning.db", fixture.folder);
    ck_assert_int_eq(number_of(path, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"),
                     ft_folder_is_local(fixture.folder));
  }
}
END_TEST

/* What was reported as written is there after a crash of the writer at any moment. The writer says how
 * many rows it has finished through a pipe. */
START_TEST(a_killed_writer_does_no_harm) {
  enum { ROUNDS = 15 };
  int64_t written = 0;
  for (int round = 0; round < ROUNDS; round++) {
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
      struct ft_store *const store = open_store(&fixture);
      struct dice dice = {.state = fixture.dice.seed + (uint64_t)round * 104729};
      for (;;) {
        struct ft_kernel kernel = make_kernel(&dice, 40000);
        if (ft_store_kernel_put(store, &kernel) != FT_OK) _exit(1);
        if (write(pipes[1], "x", 1) != 1) _exit(2);
        ft_kernel_free(&kernel);
      }
    }
    close(pipes[1]);
    char byte;
    if (round % 3 > 0) written += read(pipes[0], &byte, 1); /* else: while the file is being made */
    usleep((useconds_t)dice_below(&fixture.dice, round % 3 > 0 ? 15000 : 4000));
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status), "the writer failed: %d", WEXITSTATUS(status));
    while (read(pipes[0], &byte, 1) == 1) written++;
    close(pipes[0]);

    struct ft_store *const store = open_store(&fixture);
    struct ft_store_stats stats;
    int64_t checked = 0, damaged = -1;
    assert_ok(ft_store_verify(store, false, &checked, &damaged));
    ck_assert_int_eq(damaged, 0);
    assert_ok(ft_store_stats(store, &stats));
    ck_assert_int_ge(stats.kernels, written);
    ck_assert_int_le(stats.kernels, written + round + 1);
    ft_store_close(store);
    assert_warnings(&fixture, 0);
  }
  ck_assert_int_gt(written, ROUNDS / 2);
}
END_TEST

Suite *make_store_faults_suite(void) {
  Suite *const suite = suite_create("store_faults");
  TCase *const tests = tcase_create("faults");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, obstacles_are_left_alone, 0,
                      (int)(sizeof obstacles / sizeof obstacles[0]));
  tcase_add_test(tests, an_empty_file_is_filled);
  tcase_add_loop_test(tests, bad_folders_are_not_used, 0,
                      (int)(sizeof bad_folders / sizeof bad_folders[0]));
  tcase_add_test(tests, no_home_is_one_warning);
  tcase_add_test(tests, a_read_only_folder_is_read);
  tcase_add_test(tests, a_folder_of_somebody_else_is_not_used);
  tcase_add_test(tests, local_file_systems_are_known);
  tcase_add_loop_test(tests, a_full_disk_is_survived, 0, 2);
  tcase_add_loop_test(tests, a_damaged_kernel_is_forgotten_once, 0, 4);
  tcase_add_test(tests, a_kernel_under_a_wrong_key_is_not_handed_out);
  tcase_add_test(tests, repair_deletes_damaged_kernels_only);
  tcase_add_test(tests, corrupted_files_never_give_wrong_images);
  tcase_add_test(tests, a_file_of_broken_pages_is_set_aside);
  tcase_add_test(tests, many_processes_share_one_folder);
  tcase_add_test(tests, first_openings_may_race);
  tcase_add_test(tests, a_killed_writer_does_no_harm);
  suite_add_tcase(suite, tests);
  return suite;
}
