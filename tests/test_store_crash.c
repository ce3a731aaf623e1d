/* test_store_crash.c: flipped bits, many processes at once, writers killed at any moment: nothing
 * wrong is ever handed out, nothing finished is lost. in -> out: damaged copies and forked
 * processes -> Check suite. */
#include "tests/suites.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "cache/database.h"
#include "cache/folders.h"
#include "generator/clock.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

static struct fixture fixture;

static void set_up(void) {
  fixture_open_in(&fixture, "/tmp");
}

static void tear_down(void) {
  fixture_close(&fixture);
}

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
  assert_ok(verify_store(store, false, &checked, &damaged));
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
  run_sql(ft_store_kernels_path(store),
          "UPDATE kernels SET image = zeroblob(20000) WHERE id IN (2, 5)");
  run_sql(ft_store_tuning_path(store), "UPDATE trials SET text = text || ' '");
  int64_t checked = 0, damaged = 0;
  assert_ok(verify_store(store, true, &checked, &damaged));
  ck_assert_int_eq(checked, COUNT + 1);
  ck_assert_int_eq(damaged, 3);
  assert_ok(verify_store(store, true, &checked, &damaged));
  ck_assert_int_eq(checked, COUNT - 2);
  ck_assert_int_eq(damaged, 0);
  char kept[300]; /* of trials the file as it was is kept */
  snprintf(kept, sizeof kept, "%s.damaged", ft_store_tuning_path(store));
  ck_assert_int_eq(number_of(kept, "SELECT count(*) FROM trials"), 1);
  for (int i = 0; i < COUNT; i++) {
    const bool gone = i == 1 || i == 4;
    assert_status(ft_store_kernel_get(store, &kernels[i].key, &back),
                  gone ? FT_E_NOT_FOUND : FT_OK);
    if (!gone) ft_kernel_free(&back);
    ft_kernel_free(&kernels[i]);
  }
  ft_store_close(store);
}
END_TEST

/* Flipped bits, zeroed pages, cut ends: an image is right or it is not handed out; and a repair
 * makes the store usable again. */
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
    for (int i = 0; i < COUNT; i++) {
      struct ft_kernel *const wanted = &kernels[i];
      const int status = ft_store_kernel_get(store, &wanted->key, &back);
      ck_assert_msg(status == FT_OK || status == FT_E_NOT_FOUND, "seed %llu: %d %s",
                    (unsigned long long)fixture.dice.seed, status, ft_detail());
      *(status == FT_OK ? &served : &missed) += 1;
      if (status != FT_OK) continue;
      ck_assert_msg(same_kernel(wanted, &back), "seed %llu", (unsigned long long)fixture.dice.seed);
      ft_kernel_free(&back);
    }
    int64_t checked = 0, damaged = 0;
    assert_ok(verify_store(store, true, &checked, &damaged));
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
  assert_ok(verify_store(store, false, &checked, &damaged));
  ck_assert_int_gt(damaged, 0);
  ck_assert_int_eq(access(aside, F_OK), -1);
  assert_ok(verify_store(store, true, &checked, &damaged));
  ck_assert_int_eq(access(aside, F_OK), 0);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 20000), back;
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
  ft_kernel_free(&kernel);
  ft_kernel_free(&back);
  assert_ok(verify_store(store, false, &checked, &damaged));
  ck_assert_int_eq(damaged, 0);
  ft_store_close(store);
}
END_TEST

/* -- processes ------------------------------------------------------------------------------ */

/* What the processes tell each other. */
struct board {
  _Atomic int stop;
  double worst; /* of a writer: seconds of a kernel and a trial together */
};

static double seconds_of_put(struct ft_store *store, const struct ft_kernel *kernel,
                             const struct ft_trial *trial, int *failures) {
  const double begin = ft_seconds_now();
  if (ft_store_kernel_put(store, kernel) != FT_OK) ++*failures;
  if (ft_store_trial_put(store, trial) != FT_OK) ++*failures;
  return ft_seconds_now() - begin;
}

/* Many processes make and fill the same new store at once: the race for the write-ahead log and for
 * the schema is part of the test. Exit status: failures. */
static int write_rows(int number, int rows, struct board *board) {
  struct ft_store *const store = open_store(&fixture);
  struct dice dice = fixture.dice;
  int failures = 0;
  dice.state += (uint64_t)(number + 1) * 7919;
  for (int i = 0; i < rows; i++) {
    struct ft_kernel kernel = make_kernel(&dice, 40000), back;
    struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 10 + number);
    const double seconds = seconds_of_put(store, &kernel, &trial, &failures);
    if (seconds > board->worst) board->worst = seconds;
    if (ft_store_kernel_get(store, &kernel.key, &back) == FT_OK)
      ft_kernel_free(&back);
    else
      failures++;
    ft_kernel_free(&kernel);
  }
  ft_store_close(store);
  return failures + fixture.warning_count;
}

/* What the readers look up; it is there before they begin. */
#define READ "forward bf16 d64 nq128"

/* Looks it up until it is told to stop. Exit status: failures. */
static int read_rows(const struct board *board, const struct ft_digest *key) {
  struct ft_store *const store = open_store(&fixture);
  const struct ft_request request = request_of(READ);
  const struct ft_query query = {.request = &request, .device = CLASS_H200, .target = "sm_90"};
  const struct timespec nap = {0, 20 * 1000000L};
  int failures = 0;
  while (!atomic_load(&board->stop)) {
    struct ft_choice choice;
    struct ft_kernel kernel;
    if (ft_store_choose(store, &query, &choice) != FT_OK || choice.hit != FT_HIT_EXACT) failures++;
    if (ft_store_kernel_get(store, key, &kernel) == FT_OK)
      ft_kernel_free(&kernel);
    else
      failures++;
    nanosleep(&nap, NULL);
  }
  ft_store_close(store);
  return failures + fixture.warning_count;
}

static struct ft_digest put_what_is_read(void) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 40000);
  const struct ft_trial trial = make_trial(READ, CLASS_H200, 0, 10);
  const struct ft_digest key = kernel.key;
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_trial_put(store, &trial));
  ft_kernel_free(&kernel);
  ft_store_close(store);
  return key;
}

static void join(pid_t child, const char *what) {
  int status = 0;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a %s: status %d", what, status);
}

START_TEST(many_processes_share_one_folder) {
  enum { MOST = 64, SECONDS_PROMISED = 5 };
  const int writers = tests_are_slow() ? MOST : 12, rows = tests_are_slow() ? 200 : 15;
  struct board *const boards =
      mmap(NULL, MOST * sizeof *boards, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(boards, MAP_FAILED);
  pid_t children[2 * MOST];
  const bool fresh = !tests_are_slow() && fixture.dice.seed % 2; /* the writers make the files */
  struct ft_digest key = {{0}};
  if (!fresh) key = put_what_is_read();
  const int readers = fresh ? 0 : tests_are_slow() ? MOST : 4, before = !fresh;
  for (int i = 0; i < writers + readers; i++) {
    children[i] = fork();
    ck_assert_int_ge(children[i], 0);
    if (children[i] == 0)
      _exit(i < writers ? write_rows(i, rows, &boards[i]) : read_rows(&boards[0], &key));
  }
  double worst = 0;
  for (int i = 0; i < writers; i++) {
    join(children[i], "writer");
    if (boards[i].worst > worst) worst = boards[i].worst;
  }
  atomic_store(&boards[0].stop, 1);
  for (int i = writers; i < writers + readers; i++) join(children[i], "reader");
  printf("store_crash: %d writers of %d, %d readers: worst write %.2f s\n", writers, rows, readers,
         worst);
  ck_assert_msg(worst <= SECONDS_PROMISED, "worst write %.2f s", worst);
  munmap(boards, MOST * sizeof *boards);
  struct ft_store *const store = open_store(&fixture);
  struct ft_store_stats stats;
  int64_t checked = 0, damaged = -1;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.kernels, writers * rows + before);
  assert_ok(verify_store(store, false, &checked, &damaged));
  ck_assert_int_eq(checked, stats.kernels + stats.trials);
  ck_assert_int_eq(stats.trials, writers * rows + before);
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
      if (children[i] == 0) _exit(write_rows(i, 1, &(struct board){.stop = 0}));
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

/* A transaction that only took its lock at the first write could fail there, after it had read. */
START_TEST(a_transaction_has_its_lock_from_the_first) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 300);
  struct ft_database databases[2] = {{0}, {0}};
  assert_ok(ft_store_kernel_put(store, &kernel));
  for (int i = 0; i < 2; i++)
    assert_ok(ft_database_open(&databases[i], ft_store_kernels_path(store), FT_DATABASE_USER));
  assert_ok(ft_database_begin(&databases[0], 0));
  assert_status(ft_database_begin(&databases[1], 20), FT_E_CACHE);
  assert_ok(ft_database_commit(&databases[0]));
  assert_ok(ft_database_begin(&databases[1], 0));
  ft_database_rollback(&databases[1]);
  for (int i = 0; i < 2; i++) ft_database_close(&databases[i]);
  ft_kernel_free(&kernel);
  ft_store_close(store);
}
END_TEST

/* The kind of journal can change only while nobody reads. */
START_TEST(the_write_ahead_log_is_waited_for) {
  struct ft_store *store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 300), back;
  char path[160];
  int pipes[2];
  char byte;
  snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
  assert_ok(ft_store_kernel_put(store, &kernel));
  ft_store_close(store);
  run_sql(path, "PRAGMA journal_mode = DELETE");
  ck_assert_int_eq(pipe(pipes), 0);
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    sqlite3 *handle = NULL;
    sqlite3_open(path, &handle);
    sqlite3_exec(handle, "BEGIN; SELECT count(*) FROM kernels", NULL, NULL, NULL);
    if (write(pipes[1], "x", 1) == 1) usleep(100000);
    _exit(0);
  }
  ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
  store = open_store(&fixture);
  assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
  ck_assert_int_eq(number_of(path, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"),
                   ft_folder_is_local(fixture.folder));
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  ft_kernel_free(&back);
  ft_kernel_free(&kernel);
  ft_store_close(store);
}
END_TEST

/* What was reported as written is there after a crash of the writer at any moment. The writer says
 * how many rows it has finished through a pipe. */
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
    assert_ok(verify_store(store, false, &checked, &damaged));
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

Suite *make_store_crash_suite(void) {
  Suite *const suite = suite_create("store_crash");
  TCase *const tests = tcase_create("crash");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, a_damaged_kernel_is_forgotten_once, 0, 4);
  tcase_add_test(tests, a_kernel_under_a_wrong_key_is_not_handed_out);
  tcase_add_test(tests, repair_deletes_damaged_kernels_only);
  tcase_add_test(tests, corrupted_files_never_give_wrong_images);
  tcase_add_test(tests, a_file_of_broken_pages_is_set_aside);
  tcase_add_test(tests, first_openings_may_race);
  tcase_add_test(tests, a_transaction_has_its_lock_from_the_first);
  tcase_add_test(tests, the_write_ahead_log_is_waited_for);
  tcase_add_test(tests, a_killed_writer_does_no_harm);
  suite_add_tcase(suite, tests);
  TCase *const processes = tcase_create("processes");
  tcase_set_timeout(processes, tests_are_slow() ? 600 : 60);
  tcase_add_checked_fixture(processes, set_up, tear_down);
  tcase_add_test(processes, many_processes_share_one_folder);
  suite_add_tcase(suite, processes);
  return suite;
}
