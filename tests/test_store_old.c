/* test_store_old.c: a store written before knobs and families had their present names.
 * in -> out: old_store.sql, dumped from such a store -> it opens, its trials are skipped and kept,
 * one warning says so -> Check suite. */
#include "cache/schema.h"
#include "tests/run_program.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

enum { OLD_TRIALS = 5, OF_MEASURED = 2 };

static const char MEASURED[] = "forward bf16 d128 hq32 hkv8 nq4096 causal";

static struct fixture fixture;

static void write_old_store(const char *path) {
  struct bytes sql = read_bytes(FATUNE_SOURCE_DIR "/tests/old_store.sql");
  sql.data[sql.size] = '\0';
  run_sql(path, (const char *)sql.data);
  free(sql.data);
  ck_assert_int_eq(chmod(path, 0600), 0);
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM trials"), OLD_TRIALS);
}

static void path_in(const char *where, const char *name, char path[256]) {
  snprintf(path, 256, "%s/%s", where, name);
}

static void setup(void) {
  char path[256];
  fixture_open(&fixture);
  ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
  path_in(fixture.folder, "tuning.db", path);
  write_old_store(path);
}

static void teardown(void) {
  fixture_close(&fixture);
}

/* One warning since the last look, that so many are skipped and why; and no fault. */
static void assert_told(struct ft_store *store, const char *file, int trials) {
  char part[320];
  assert_warnings(&fixture, 1);
  snprintf(part, sizeof part, "%s: %d trial%s of another version", file, trials,
           trials == 1 ? "" : "s");
  ck_assert_msg(strstr(fixture.warnings[0], part) != NULL, "'%s' is not in '%s'", part,
                fixture.warnings[0]);
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "(trial text: field 'config': config: "));
  ck_assert_ptr_null(strstr(fixture.warnings[0], "allowed"));
  ck_assert_int_eq(ft_store_faults(store), 0);
  fixture.warning_count = 0;
}

static struct ft_choice choose(struct ft_store *store, const char *text) {
  return choose_for(store, text, (struct ft_query){.device = CLASS_H200, .target = "sm_90"});
}

START_TEST(a_look_up_passes_old_trials_over_and_says_so_once) {
  struct ft_store *const store = open_store(&fixture);
  ck_assert_int_eq(choose(store, "forward bf16 d96 nq128").hit, FT_HIT_DEFAULT);
  assert_warnings(&fixture, 0); /* nothing old was in the way */
  ck_assert_int_eq(choose(store, MEASURED).hit, FT_HIT_DEFAULT);
  assert_told(store, "tuning.db", OF_MEASURED);
  ck_assert_int_eq(choose(store, MEASURED).hit, FT_HIT_DEFAULT);
  assert_warnings(&fixture, 0);
  ft_store_close(store);
}
END_TEST

START_TEST(new_trials_go_beside_old_ones) {
  struct ft_store *const store = open_store(&fixture);
  const struct ft_trial trial = make_trial(MEASURED, CLASS_H200, 3, 900);
  assert_ok(ft_store_trial_put(store, &trial));
  const struct ft_choice choice = choose(store, MEASURED);
  ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
  ck_assert_int_eq(ft_config_compare(&choice.config, &trial.config), 0);
  assert_told(store, "tuning.db", 1); /* the look-up does not come to what was only screened */
  ck_assert_int_eq(number_of(ft_store_tuning_path(store), "SELECT count(*) FROM trials"),
                   OLD_TRIALS + 1);
  ft_store_close(store);
}
END_TEST

static void schema_of(const char *path, struct ft_text *text) {
  sqlite3 *handle = NULL;
  sqlite3_stmt *statement = NULL;
  ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
  ck_assert_int_eq(sqlite3_prepare_v2(handle, "SELECT sql FROM sqlite_schema ORDER BY name", -1,
                                      &statement, NULL),
                   SQLITE_OK);
  while (sqlite3_step(statement) == SQLITE_ROW) {
    const char *const sql = (const char *)sqlite3_column_text(statement, 0);
    ft_text_add(text, "%s\n", sql ? sql : "");
  }
  sqlite3_finalize(statement);
  sqlite3_close(handle);
}

/* By this a newer file is told from one whose version is damaged. */
START_TEST(each_version_has_more_tables_or_indexes) {
  char path[256];
  int64_t before = 0;
  path_in(fixture.root, "steps.db", path);
  for (int step = 1; step <= FT_SCHEMA_VERSION; step++) {
    run_sql(path, ft_schema_step(step));
    const int64_t now = number_of(path, "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL");
    ck_assert_int_gt(now, before);
    before = now;
  }
}
END_TEST

/* A file of the first version has been brought to the present one, in which new files are made. A
 * step that was edited after its release would show. */
START_TEST(old_and_new_files_have_the_same_schema) {
  const struct ft_trial trial = make_trial(MEASURED, CLASS_H200, 3, 900);
  char path[256];
  struct ft_text old = FT_TEXT_INIT, new = FT_TEXT_INIT;
  path_in(fixture.root, "new", path);
  struct ft_store *store = open_store(&fixture);
  assert_ok(ft_store_trial_put(store, &trial));
  schema_of(ft_store_tuning_path(store), &old);
  ft_store_close(store);
  store = open_store_with(&fixture, (struct ft_store_options){.folder = path});
  assert_ok(ft_store_trial_put(store, &trial));
  schema_of(ft_store_tuning_path(store), &new);
  ck_assert_int_eq(number_of(ft_store_tuning_path(store), "PRAGMA application_id"),
                   FT_APPLICATION_ID);
  ck_assert_int_eq(number_of(ft_store_tuning_path(store), "PRAGMA user_version"),
                   FT_SCHEMA_VERSION);
  ck_assert_uint_gt(new.length, 100);
  ck_assert_str_eq(old.data, new.data);
  ft_text_free(&old);
  ft_text_free(&new);
  ft_store_close(store);
}
END_TEST

static bool count_visits(void *payload, const struct ft_trial *trial) {
  (void)trial;
  *(int *)payload += 1;
  return true;
}

START_TEST(lists_and_checks_count_old_trials) {
  const struct ft_trial trial = make_trial(MEASURED, CLASS_H200, 3, 900);
  struct ft_store *store = open_store(&fixture);
  struct ft_store_stats stats;
  int64_t checked, damaged;
  int visits = 0;
  assert_ok(ft_store_trial_put(store, &trial));
  assert_ok(ft_store_trials(store, NULL, NULL, count_visits, &visits));
  ck_assert_int_eq(visits, 1);
  assert_told(store, "tuning.db", OLD_TRIALS);
  ft_store_close(store);

  store = open_store(&fixture);
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.trials, OLD_TRIALS + 1);
  ck_assert_int_eq(stats.skipped, OLD_TRIALS);
  ck_assert_int_eq(stats.winners, 1);
  assert_told(store, "tuning.db", OLD_TRIALS);
  ft_store_close(store);

  store = open_store(&fixture);
  assert_ok(verify_store(store, true, &checked, &damaged));
  ck_assert_int_eq(checked, OLD_TRIALS + 1);
  ck_assert_int_eq(damaged, 0);
  assert_told(store, "tuning.db", OLD_TRIALS);
  ft_store_close(store);
}
END_TEST

START_TEST(old_trials_do_not_travel) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_store_stats stats;
  char file[256];
  int64_t trials = -1, kernels = -1;
  path_in(fixture.root, "sm_90.fatune", file);
  assert_ok(export_store(store, "sm_90", NULL, file, &trials, &kernels));
  ck_assert_int_eq(trials + kernels, 0);
  assert_told(store, "tuning.db", 3);

  path_in(fixture.root, "theirs.db", file);
  write_old_store(file);
  for (int merge = 0; merge < 2; merge++) {
    assert_ok(merge ? ft_store_merge(store, file, &trials, &kernels)
                    : ft_store_import(store, file, &trials, &kernels));
    ck_assert_int_eq(trials + kernels, 0);
    assert_told(store, "theirs.db", OLD_TRIALS);
  }
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.trials, OLD_TRIALS);
  ft_store_close(store);
}
END_TEST

START_TEST(an_old_layer_is_passed_over) {
  char file[256];
  path_in(fixture.root, "sm_90.fatune", file);
  write_old_store(file);
  const struct ft_store_options options = {.folder = "/nowhere/at/all",
                                           .system_path = fixture.root};
  struct ft_store *const store = open_store_with(&fixture, options);
  ck_assert_int_eq(choose(store, MEASURED).hit, FT_HIT_DEFAULT);
  assert_told(store, "sm_90.fatune", OF_MEASURED);
  ft_store_close(store);
}
END_TEST

/* ---- the program ---- */

static void begin_program(void) {
  char path[256];
  begin_program_test();
  path_in(folder, "tuning.db", path);
  write_old_store(path);
}

static void expect_told_once(const char *arguments, int trials) {
  char part[96];
  expect(arguments, 0);
  snprintf(part, sizeof part, "tuning.db: %d trials of another version are skipped", trials);
  expect_message(part);
  const char *const first = strstr(messages, "of another version");
  ck_assert_msg(strstr(first + 1, "of another version") == NULL, "%s", messages);
}

START_TEST(every_command_says_it_once) {
  char line[256];
  expect_told_once("cache list", OLD_TRIALS);
  expect_told_once("cache list --all", OLD_TRIALS);
  expect_told_once("cache stats", OLD_TRIALS);
  expect_output("skipped_trials     5");
  expect_told_once("cache verify", OLD_TRIALS);
  expect_output("5 checked, 0 damaged");
  expect_told_once("explain d64 nq512 --gpu a100", 2);
  expect_output("default");
  expect_told_once("emit d64 nq512 --gpu a100", 2);
  expect_told_once("doctor", OLD_TRIALS);
  snprintf(line, sizeof line, "cache export --allow-empty --gpu a100 -o '%s/sm_80.fatune'", folder);
  expect_told_once(line, 2);
  snprintf(line, sizeof line, "cache import --cache-dir '%s/new' '%s/tuning.db'", folder, folder);
  expect_told_once(line, OLD_TRIALS);
}
END_TEST

START_TEST(tuning_goes_on_beside_old_trials) {
  need_nvrtc();
  expect_told_once("tune --gpu a100 --effort quick --shard 1/7 d64 nq512", 2);
  expect_told_once("explain d64 nq512 --gpu a100 --json", 2);
  json_t *const root = document("explain");
  ck_assert_str_eq(text_at(root, "hit"), "model");
  json_decref(root);
}
END_TEST

Suite *make_store_old_suite(void) {
  Suite *const suite = suite_create("store_old");
  TCase *const tests = tcase_create("store");
  tcase_add_checked_fixture(tests, setup, teardown);
  tcase_add_test(tests, a_look_up_passes_old_trials_over_and_says_so_once);
  tcase_add_test(tests, new_trials_go_beside_old_ones);
  tcase_add_test(tests, each_version_has_more_tables_or_indexes);
  tcase_add_test(tests, old_and_new_files_have_the_same_schema);
  tcase_add_test(tests, lists_and_checks_count_old_trials);
  tcase_add_test(tests, old_trials_do_not_travel);
  tcase_add_test(tests, an_old_layer_is_passed_over);
  suite_add_tcase(suite, tests);
  TCase *const programs = tcase_create("program");
  tcase_add_checked_fixture(programs, begin_program, end_program_test);
  tcase_set_timeout(programs, 300);
  tcase_add_test(programs, every_command_says_it_once);
  tcase_add_test(programs, tuning_goes_on_beside_old_trials);
  suite_add_tcase(suite, programs);
  return suite;
}
