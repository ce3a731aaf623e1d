/* test_store_parts.c: functions of the store that are called here by themselves, because some of
 * their branches are out of reach when a whole store is used. in -> out: failing calls, files and
 * rows made by hand -> the status of each function -> Check suite. */
#include "cache/database_file.h"
#include "cache/minisign.h"
#include "cache/place.h"
#include "cache/samples.h"
#include "cache/schema.h"
#include "cache/schema_check.h"
#include "cache/store_parts.h"
#include "cache/winner.h"
#include "tests/faulty/fault_calls.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

static struct fixture fixture;
static char path[160];

static void set_up(void) {
  fixture_open(&fixture);
  snprintf(path, sizeof path, "%s/one.db", fixture.root);
  ck_assert_int_eq(sqlite3_shutdown(), SQLITE_OK);
  fault_calls_begin();
}

static void tear_down(void) {
  fixture_close(&fixture);
}

/* A sound file of ours. */
static void make_file(const char *at) {
  struct ft_database database = {0};
  write_bytes(at, "", 0);
  assert_ok(ft_database_open(&database, at, FT_DATABASE_FRESH_LAYER));
  ft_database_close(&database);
}

START_TEST(nothing_is_no_fault) {
  struct ft_summary_of_samples summary = ft_samples_summarise(NULL, 0);
  ck_assert(summary.median == 0 && summary.spread == 0 && summary.least == 0);
  ft_standings_order(NULL, 0);
  ft_kernel_free(NULL);
}
END_TEST

START_TEST(a_copy_of_a_kernel_is_whole_or_none) {
  struct ft_kernel kernel = make_kernel(&fixture.dice, 1000), bare = {.target = "sm_90"}, copy;
  free(kernel.log);
  kernel.log = strdup("a log");
  assert_ok(ft_kernel_copy(&copy, &kernel));
  ck_assert(same_kernel(&copy, &kernel) && copy.image != kernel.image);
  ft_kernel_free(&copy);
  assert_ok(ft_kernel_copy(&copy, &bare));
  ck_assert(!copy.image && !copy.log);
  for (long n = 1; n <= 2; n++) {
    fault_calls_arm(FAULT_MEMORY, n, false);
    const int status = ft_kernel_copy(&copy, &kernel);
    fault_calls_disarm();
    ck_assert_int_eq(status, FT_E_MEMORY);
    ck_assert(!copy.image && !copy.log);
  }
  ft_kernel_free(&kernel);
}
END_TEST

START_TEST(outcomes_stand_in_their_order) {
  enum { STANDINGS = 3 };
  struct ft_trial trials[STANDINGS];
  struct ft_standing standings[STANDINGS];
  static const enum ft_outcome outcomes[STANDINGS] = {FT_OUTCOME_PREDICTED, FT_OUTCOME_OK,
                                                      FT_OUTCOME_SCREENED};
  for (int turn = 0; turn < STANDINGS; turn++) {
    for (int i = 0; i < STANDINGS; i++) {
      trials[i] = make_trial("d64 nq512", CLASS_H200, i, 10);
      trials[i].outcome = outcomes[(i + turn) % STANDINGS];
      standings[i] = (struct ft_standing){.trial = &trials[i], .median_us = 10};
    }
    ft_standings_order(standings, STANDINGS);
    for (int i = 1; i < STANDINGS; i++)
      ck_assert_int_lt(standings[i - 1].trial->outcome, standings[i].trial->outcome);
  }
}
END_TEST

START_TEST(rows_of_another_version_are_counted) {
  struct ft_database database = {0};
  for (int i = 0; i < 200; i++) {
    const struct ft_digest identity = dice_digest(&fixture.dice);
    const bool fails = i == 64; /* there, room for more is asked for */
    ft_fail(FT_E_NOT_FOUND, "no knob of that name; allowed are others");
    fault_calls_arm(FAULT_MEMORY, fails, false);
    ft_store_skip(&database, &identity);
    fault_calls_disarm();
    ck_assert_uint_eq(database.skipped.count, (size_t)(i < 64 ? i + 1 : i));
  }
  ck_assert_str_eq(database.skipped.reason, "no knob of that name");
  free(database.skipped.rows);
}
END_TEST

START_TEST(more_statements_than_are_kept) {
  struct ft_database database = {0};
  enum { STATEMENTS = FT_PREPARED_MAX + 3 };
  static char texts[STATEMENTS][32]; /* told apart by address */
  sqlite3_stmt *statement;
  assert_ok(ft_database_open(&database, NULL, FT_DATABASE_MEMORY));
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < STATEMENTS; i++) {
      snprintf(texts[i], sizeof texts[i], "SELECT %d", i);
      assert_ok(ft_database_prepare(&database, texts[i], &statement));
      ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
      ck_assert_int_eq(sqlite3_column_int(statement, 0), i);
      ft_database_done(statement);
    }
  }
  ft_database_close(&database);
}
END_TEST

/* ---- memory ---- */

START_TEST(without_memory_for_sqlite_nothing_is_said_of_a_file) {
  int code = 0;
  make_file(path);
  ck_assert_int_eq(sqlite3_shutdown(), SQLITE_OK);
  fault_calls_arm(FAULT_MEMORY, 1, true);
  const int status = ft_file_readable(path, &code);
  fault_calls_disarm();
  ck_assert_int_eq(status, FT_E_MEMORY);
  assert_ok(ft_file_readable(path, &code));
}
END_TEST

START_TEST(lack_of_memory_by_any_code) {
  struct ft_database database = {0};
  int64_t number;
  assert_ok(ft_database_open(&database, NULL, FT_DATABASE_MEMORY));
  fault_database_by(SQLITE_IOERR_NOMEM);
  fault_calls_arm(FAULT_DATABASE, 1, false);
  const int status = ft_database_number(&database, "SELECT 1", &number);
  fault_calls_disarm();
  ck_assert_int_eq(status, FT_E_MEMORY);
  ft_database_close(&database);
  fault_calls_arm(FAULT_MEMORY, 1, false);
  void *const bytes = ft_database_bytes("bytes", 5);
  fault_calls_disarm();
  ck_assert_ptr_null(bytes);
}
END_TEST

/* ---- files that others hold ---- */

START_TEST(a_file_that_stays_held_is_not_overwritten) {
  struct ft_database from = {0}, to = {0};
  write_bytes(path, "", 0);
  assert_ok(ft_database_open(&to, path, FT_DATABASE_FRESH_LAYER));
  assert_ok(ft_database_open(&from, NULL, FT_DATABASE_MEMORY));
  fault_database_by(SQLITE_BUSY);
  fault_calls_arm(FAULT_DATABASE, 2, true); /* the first one begins the copy */
  const int status = ft_database_overwrite(&to, &from, 20);
  fault_calls_disarm();
  ck_assert_int_eq(status, FT_E_CACHE);
  assert_ok(ft_database_overwrite(&to, &from, 20));
  ft_database_close(&from);
  ft_database_close(&to);
}
END_TEST

/* Another process holds the file while the store is opened, through all attempts to switch to a
 * write-ahead log. The store then uses the file with the journal that it has. */
START_TEST(a_journal_that_cannot_be_changed_is_left) {
  struct ft_store *store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 500);
  assert_ok(ft_store_kernel_put(store, &kernel));
  ft_store_close(store);
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  setenv("FATUNE_TEST_NETWORK", "1", 1);
  store = open_store(&fixture);
  assert_has(&fixture, store, &kernel);
  ft_store_close(store);
  unsetenv("FATUNE_TEST_NETWORK");
  sqlite3 *holder = NULL;
  ck_assert_int_eq(sqlite3_open(path, &holder), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(holder, "BEGIN; SELECT * FROM kernels", NULL, NULL, NULL),
                   SQLITE_OK);
  store = open_store(&fixture);
  assert_has(&fixture, store, &kernel);
  ft_store_close(store);
  sqlite3_close(holder);
  ft_kernel_free(&kernel);
}
END_TEST

/* ---- schemas ---- */

START_TEST(a_schema_of_the_same_length_is_another) {
  struct ft_database database = {0};
  make_file(path);
  assert_ok(ft_database_open(&database, path, FT_DATABASE_LOOK));
  assert_ok(ft_schema_check(&database, FT_SCHEMA_VERSION));
  ft_database_close(&database);
  run_sql(path, "PRAGMA writable_schema=1;"
                "UPDATE sqlite_schema SET sql = replace(sql, 'median', 'meDian'),"
                " name = replace(name, 'by_bucket', 'by_bucKet');");
  assert_ok(ft_database_open(&database, path, FT_DATABASE_LOOK));
  assert_status(ft_schema_check(&database, FT_SCHEMA_VERSION), FT_E_CACHE);
  ft_database_close(&database);
}
END_TEST

/* ---- signatures ---- */

START_TEST(pieces_of_a_signature_are_none) {
  static const char *const pieces[] = {"", "untrusted comment: alone\n",
                                       "untrusted comment: short\nRUQ=\n"};
  int index;
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
    assert_status(ft_signature_check(pieces[i], "bytes", 5, NULL, 0, &index, NULL), FT_E_CACHE);
}
END_TEST

/* ---- places ---- */

START_TEST(a_file_of_somebody_else_is_at_no_safe_place) {
  if (geteuid() != 0) return; /* nobody else can give files away */
  char *real = NULL;
  make_file(path);
  assert_ok(ft_place_check(path, &real));
  free(real);
  ck_assert_int_eq(chown(path, 4711, (gid_t)-1), 0);
  assert_status(ft_place_check(path, &real), FT_E_CACHE);
  ck_assert_int_eq(chmod(fixture.root, 0755), 0);
  ck_assert_int_eq(seteuid(4711), 0);
  const int of_its_own = ft_place_check(path, &real);
  ck_assert_int_eq(seteuid(0), 0);
  assert_ok(of_its_own);
  free(real);
}
END_TEST

Suite *make_store_parts_suite(void) {
  Suite *const suite = suite_create("store_parts");
  TCase *const tests = tcase_create("parts");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, nothing_is_no_fault);
  tcase_add_test(tests, a_copy_of_a_kernel_is_whole_or_none);
  tcase_add_test(tests, outcomes_stand_in_their_order);
  tcase_add_test(tests, rows_of_another_version_are_counted);
  tcase_add_test(tests, more_statements_than_are_kept);
  tcase_add_test(tests, without_memory_for_sqlite_nothing_is_said_of_a_file);
  tcase_add_test(tests, lack_of_memory_by_any_code);
  tcase_add_test(tests, a_file_that_stays_held_is_not_overwritten);
  tcase_add_test(tests, a_journal_that_cannot_be_changed_is_left);
  tcase_add_test(tests, a_schema_of_the_same_length_is_another);
  tcase_add_test(tests, pieces_of_a_signature_are_none);
  tcase_add_test(tests, a_file_of_somebody_else_is_at_no_safe_place);
  suite_add_tcase(suite, tests);
  return suite;
}
