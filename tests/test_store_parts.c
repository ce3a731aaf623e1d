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

/* ---- what another process does meanwhile ---- */

static struct bytes made; /* by it: a sound file with a kernel */

static void make_theirs(void) {
  char theirs[200];
  snprintf(theirs, sizeof theirs, "%s/theirs", fixture.root);
  write_bytes(theirs, made.data, made.size);
  if (chmod(theirs, 0600) == 0) (void)link(theirs, path);
  unlink(theirs);
}

static void delete_all(void) {
  static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
  char name[200];
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    snprintf(name, sizeof name, "%s%s", path, endings[i]);
    unlink(name);
  }
}

static void (*const meanwhile[])(void) = {make_theirs, delete_all};

/* Another process makes or deletes files just before the n-th call for files of a put, for each n.
 * What it has made is used. What it has deleted is made again, by the next store at the latest. */
START_TEST(another_process_may_do_anything_meanwhile) {
  struct ft_kernel kernels[2] = {make_kernel(&fixture.dice, 500), make_kernel(&fixture.dice, 500)};
  struct ft_store *store = open_store(&fixture);
  int64_t checked, damaged;
  bool fired = true;
  assert_ok(ft_store_kernel_put(store, &kernels[0]));
  ft_store_close(store);
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  made = read_bytes(path);
  for (long n = 1; fired; n++) {
    delete_all();
    fixture.warning_count = 0;
    store = open_store(&fixture);
    fault_calls_act(FAULT_FILES, n, meanwhile[_i]);
    const int status = ft_store_kernel_put(store, &kernels[1]);
    fired = fault_calls_disarm() >= n;
    ck_assert_msg(status == FT_OK || (status == FT_E_CACHE && fixture.warning_count > 0),
                  "call %ld: %d %s", n, status, ft_detail());
    ft_store_close(store);
    store = open_store(&fixture);
    assert_ok(ft_store_kernel_put(store, &kernels[1]));
    assert_ok(verify_store(store, false, &checked, &damaged));
    ck_assert_msg(damaged == 0, "call %ld", n);
    ft_store_close(store);
    store = open_store(&fixture);
    assert_has(&fixture, store, &kernels[1]);
    ft_store_close(store);
  }
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
  free(made.data);
}
END_TEST

/* ---- limits ---- */

START_TEST(no_more_warnings_than_are_kept) {
  char folder[96], name[200];
  snprintf(folder, sizeof folder, "%s/layers", fixture.root);
  ck_assert_int_eq(mkdir(folder, 0755), 0);
  for (int i = 0; i < FT_WARNINGS_MAX + 4; i++) {
    snprintf(name, sizeof name, "%s/%02d.fatune", folder, i);
    write_bytes(name, "no layer", 8);
  }
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.system_path = folder});
  ck_assert_int_eq(ft_store_faults(store), FT_WARNINGS_MAX + 4);
  ft_store_close(store);
  assert_warnings(&fixture, FT_WARNINGS_MAX);
}
END_TEST

START_TEST(a_log_too_long_is_left_out) {
  struct ft_kernel kernel = make_kernel(&fixture.dice, 500), back;
  struct ft_store *const store = open_store(&fixture);
  free(kernel.log);
  kernel.log = malloc(FT_LOG_LIMIT + 2);
  memset(kernel.log, 'x', FT_LOG_LIMIT + 1);
  kernel.log[FT_LOG_LIMIT + 1] = '\0';
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_kernel_get(store, &kernel.key, &back));
  ck_assert_ptr_null(back.log);
  ck_assert_mem_eq(back.image, kernel.image, kernel.image_size);
  ft_store_close(store);
  ft_kernel_free(&back);
  ft_kernel_free(&kernel);
}
END_TEST

/* A table whose root is spoilt has any ids: its reading ends when it has failed often enough. */
START_TEST(a_salvage_ends) {
  enum { PAGE = 8192 };
  struct ft_database from = {0}, into = {0};
  unsigned char noise[PAGE / 2];
  int64_t saved = 0;
  bool whole = true;
  make_file(path);
  run_sql(path, "INSERT INTO kernels (id, key, source, target, used, identity, text, image) "
                "VALUES (9000000000, x'01', x'02', 't', 1, x'03', 'text', x'04')");
  const int64_t root = number_of(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'kernels'");
  for (size_t i = 0; i < sizeof noise; i++) noise[i] = 0x55;
  const int file = open(path, O_WRONLY);
  ck_assert_int_eq(pwrite(file, noise, sizeof noise, (off_t)(root - 1) * PAGE), sizeof noise);
  close(file);
  assert_ok(ft_database_open(&from, path, FT_DATABASE_REMAINS));
  assert_ok(ft_database_open(&into, NULL, FT_DATABASE_MEMORY));
  assert_ok(ft_store_salvage(&from, &into, 100, &saved, &whole));
  ck_assert(!whole && saved == 0);
  ft_database_close(&from);
  ft_database_close(&into);
}
END_TEST

/* ---- layers and files ---- */

START_TEST(a_program_may_have_the_name_of_the_folder_of_layers) {
  write_bytes(path, "a program", 9);
  struct ft_store *store =
      open_store_with(&fixture, (struct ft_store_options){.library_folder = path});
  ft_store_close(store);
  assert_warnings(&fixture, 0);
  store = open_store_with(&fixture, (struct ft_store_options){.system_path = path});
  ft_store_close(store);
  assert_warnings(&fixture, 1);
}
END_TEST

START_TEST(an_empty_log_is_as_good_as_none) {
  static char long_folder[5000];
  const struct ft_trial trial = make_trial("d64 nq512", CLASS_H200, 1, 10);
  struct ft_store *store = open_store(&fixture);
  assert_ok(ft_store_trial_put(store, &trial));
  ft_store_close(store);
  store = open_store(&fixture);
  const uint64_t before = ft_store_state(store);
  snprintf(path, sizeof path, "%s/tuning.db-wal", fixture.folder);
  ck_assert_int_ne(access(path, F_OK), 0);
  write_bytes(path, "", 0);
  ck_assert_uint_eq(ft_store_state(store), before);
  write_bytes(path, "x", 1);
  ck_assert_uint_ne(ft_store_state(store), before);
  ft_store_close(store);
  memset(long_folder, 'x', sizeof long_folder - 1);
  long_folder[0] = '/';
  store = open_store_with(&fixture, (struct ft_store_options){.folder = long_folder});
  ck_assert_uint_eq(ft_store_state(store), 0);
  ft_store_close(store);
}
END_TEST

/* A journal to be played back, and nobody who may write. */
START_TEST(a_file_that_cannot_be_made_ready_is_read_as_it_lies) {
  struct ft_database database = {0};
  make_file(path);
  fault_database_by(SQLITE_READONLY_ROLLBACK);
  for (long n = 1; n <= 3; n++) { /* of the opening and the first reading */
    fault_calls_arm(FAULT_DATABASE, n, false);
    const int status = ft_database_open(&database, path, FT_DATABASE_FOREIGN);
    ck_assert_int_ge(fault_calls_disarm(), n);
    ck_assert_msg(status == FT_OK, "call %ld: %s", n, ft_detail());
    ft_database_close(&database);
  }
}
END_TEST

/* The text of one config may begin that of another. */
START_TEST(a_trial_names_the_kernel_of_its_own_config) {
  struct ft_kernel kernel = make_kernel(&fixture.dice, 500);
  struct ft_trial trial = make_trial("d64 nq512", CLASS_H200, 1, 10);
  const struct ft_request request = trial.request;
  const struct ft_query query = {.request = &request, .device = CLASS_H200, .target = "sm_90"};
  struct ft_config config = trial.config;
  struct ft_digest key;
  const int last = config.family->knob_count - 1;
  struct ft_store *const store = open_store(&fixture);
  config.knobs[last] = 1;
  trial.config.knobs[last] = 12;
  trial.kernel = kernel.key;
  assert_ok(ft_store_trial_put(store, &trial));
  assert_status(ft_store_kernel_of_config(store, &query, &config, &key), FT_E_NOT_FOUND);
  assert_ok(ft_store_kernel_of_config(store, &query, &trial.config, &key));
  ck_assert(ft_digest_equal(&key, &kernel.key));
  ft_store_close(store);
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
  struct ft_text comment = FT_TEXT_INIT;
  static const char *const pieces[] = {"", "untrusted comment: alone\n",
                                       "untrusted comment: short\nRUQ=\n"};
  int index;
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
    assert_status(ft_signature_check(pieces[i], "bytes", 5, NULL, 0, &index, &comment), FT_E_CACHE);
  ft_text_free(&comment);
}
END_TEST

/* ---- places ---- */

START_TEST(a_place_that_cannot_be_looked_at_is_not_safe) {
  char link[200], *real = NULL;
  snprintf(link, sizeof link, "%s/link", fixture.root);
  make_file(path);
  ck_assert_int_eq(symlink("one.db", link), 0);
  for (long n = 1, fired = true; fired; n++) {
    fault_calls_arm(FAULT_FILES, n, false);
    const int status = ft_place_check(link, &real);
    fired = fault_calls_disarm() >= n;
    ck_assert_int_eq(status, fired ? FT_E_CACHE : FT_OK);
    ck_assert(!fired == !!real);
  }
  free(real);
}
END_TEST

/* A link half-way down a deep path leads down once more. */
START_TEST(a_place_may_lie_too_deep) {
  enum { DEPTH = 20, NAME = 200, DEEPEST = 4096 };
  static char deep[8192], below[DEEPEST], link[8200];
  char name[NAME + 1], *real = NULL;
  memset(name, 'n', NAME);
  name[NAME] = '\0';
  int length = snprintf(deep, sizeof deep, "%s", fixture.root);
  for (int i = 0; i < DEPTH; i++) {
    if (i == DEPTH / 2) snprintf(link, sizeof link, "%s/link", deep);
    length += snprintf(deep + length, sizeof deep - (size_t)length, "/%s", name);
    if (length < DEEPEST) ck_assert_int_eq(mkdir(deep, 0700), 0);
    if (i >= DEPTH / 2 - 1) strcat(strcat(below, i < DEPTH / 2 ? "" : "/"), name);
  }
  ck_assert_int_eq(symlink(below, link), 0);
  assert_status(ft_place_check(link, &real), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "its name is too long"));
}
END_TEST

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
  tcase_add_loop_test(tests, another_process_may_do_anything_meanwhile, 0,
                      (int)(sizeof meanwhile / sizeof *meanwhile));
  tcase_add_test(tests, no_more_warnings_than_are_kept);
  tcase_add_test(tests, a_log_too_long_is_left_out);
  tcase_add_test(tests, a_salvage_ends);
  tcase_add_test(tests, a_program_may_have_the_name_of_the_folder_of_layers);
  tcase_add_test(tests, an_empty_log_is_as_good_as_none);
  tcase_add_test(tests, a_file_that_cannot_be_made_ready_is_read_as_it_lies);
  tcase_add_test(tests, a_trial_names_the_kernel_of_its_own_config);
  tcase_add_test(tests, a_place_that_cannot_be_looked_at_is_not_safe);
  tcase_add_test(tests, a_place_may_lie_too_deep);
  suite_add_tcase(suite, tests);
  return suite;
}
