/* test_store_rows.c: rows that are damaged, or of another version, met by each way of reading them.
 * in -> out: a store with one such row, changed by SQL -> what is found all the same, and what is
 * told -> Check suite. */
#include "tests/suites.h"

#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"
#define NEARBY  "forward bf16 d128 hq16 hkv16 b4 nq4096 nk4096 causal"

static struct fixture fixture;
static struct ft_kernel kernels[3];
static char tuning[128], kernels_db[128];

/* Three kernels, each of a trial of its own; the first is the best. */
static void set_up(void) {
  fixture_open(&fixture);
  snprintf(tuning, sizeof tuning, "%s/tuning.db", fixture.folder);
  snprintf(kernels_db, sizeof kernels_db, "%s/kernels.db", fixture.folder);
  struct ft_store *const store = open_store(&fixture);
  for (int i = 0; i < 3; i++) {
    struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 100 + 10 * i);
    kernels[i] = make_kernel(&fixture.dice, 500);
    trial.kernel = kernels[i].key;
    assert_ok(ft_store_kernel_put(store, &kernels[i]));
    assert_ok(ft_store_trial_put(store, &trial));
  }
  ft_store_close(store);
}

static void tear_down(void) {
  for (int i = 0; i < 3; i++) ft_kernel_free(&kernels[i]);
  fixture_close(&fixture);
}

/* A sound row of a version that knows a field more. */
static void put_row_of_another_version(int id) {
  char text[4096], hex[FT_DIGEST_HEX], sql[9000];
  sqlite3 *handle = NULL;
  sqlite3_stmt *statement = NULL;
  ck_assert_int_eq(sqlite3_open(tuning, &handle), SQLITE_OK);
  snprintf(sql, sizeof sql, "SELECT text || ' flavour=strange' FROM trials WHERE id = %d", id);
  ck_assert_int_eq(sqlite3_prepare_v2(handle, sql, -1, &statement, NULL), SQLITE_OK);
  ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
  snprintf(text, sizeof text, "%s", (const char *)sqlite3_column_text(statement, 0));
  sqlite3_finalize(statement);
  sqlite3_close(handle);
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "trial", text, strlen(text));
  const struct ft_digest identity = ft_hasher_final(&hasher);
  ft_digest_hex(&identity, hex);
  char *const quoted = sqlite3_mprintf("%q", text);
  snprintf(sql, sizeof sql, "UPDATE trials SET text = '%s', identity = x'%s' WHERE id = %d", quoted,
           hex, id);
  sqlite3_free(quoted);
  run_sql(tuning, sql);
}

static int key_of_config(struct ft_store *store, int config, const char *templates,
                         struct ft_digest *key) {
  const struct ft_request request = request_of(NEARBY);
  const struct ft_config wanted = config_number(config);
  const struct ft_digest digest = digest_of_text(templates ? templates : "");
  const struct ft_query query = {.request = &request,
                                 .device = CLASS_H200,
                                 .target = "sm_90",
                                 .templates = templates ? &digest : NULL};
  return ft_store_kernel_of_config(store, &query, &wanted, key);
}

START_TEST(the_kernel_of_a_config_is_of_a_sound_row) {
  struct ft_digest key;
  run_sql(tuning, "UPDATE trials SET text = text || ' ' WHERE id = 1");
  put_row_of_another_version(2);
  struct ft_store *const store = open_store(&fixture);
  assert_status(key_of_config(store, 0, "templates 1", &key), FT_E_NOT_FOUND);
  assert_status(key_of_config(store, 1, NULL, &key), FT_E_NOT_FOUND);
  assert_ok(key_of_config(store, 2, "templates 1", &key));
  ck_assert(ft_digest_equal(&key, &kernels[2].key));
  assert_ok(key_of_config(store, 2, NULL, &key));
  assert_status(key_of_config(store, 2, "templates 2", &key), FT_E_NOT_FOUND);
  struct ft_trial failed = make_trial(PROBLEM, CLASS_H200, 5, 100);
  failed.kernel = (struct ft_digest){{0}};
  assert_ok(ft_store_trial_put(store, &failed)); /* what did not compile names no kernel */
  assert_status(key_of_config(store, 5, NULL, &key), FT_E_NOT_FOUND);
  ft_store_close(store);
  assert_warnings(&fixture, 2); /* of damage, and of another version */
}
END_TEST

static const char *const other_keys[] = {
    "UPDATE kernels SET key = x'0011' WHERE id = 1",
    "UPDATE kernels SET key = zeroblob(32) WHERE id = 1",
    "UPDATE kernels SET key = 7 WHERE id = 1",
};

START_TEST(a_row_under_another_key_is_damaged) {
  struct ft_kernel back;
  int64_t checked, damaged;
  run_sql(kernels_db, other_keys[_i]);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(verify_store(store, true, &checked, &damaged));
  ck_assert_int_eq(damaged, 1);
  assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
  for (int i = 1; i < 3; i++) assert_has(&fixture, store, &kernels[i]);
  assert_ok(verify_store(store, false, &checked, &damaged));
  ck_assert_int_eq(damaged, 0);
  ck_assert_int_eq(checked, 5);
  ft_store_close(store);
}
END_TEST

START_TEST(a_bundle_with_rows_of_another_version_is_sound) {
  struct ft_bundle_verdict verdict;
  put_row_of_another_version(2);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_verify_bundle(store, tuning, &verdict));
  ck_assert_int_eq(verdict.trials, 3);
  ck_assert_int_eq(verdict.damaged, 0);
  run_sql(tuning, "UPDATE trials SET text = text || ' ' WHERE id = 1");
  assert_status(ft_store_verify_bundle(store, tuning, &verdict), FT_E_CACHE);
  ck_assert_int_eq(verdict.damaged, 1);
  run_sql(kernels_db, "UPDATE kernels SET text = text || ' ' WHERE id < 3");
  assert_status(ft_store_verify_bundle(store, kernels_db, &verdict), FT_E_CACHE);
  ck_assert_int_eq(verdict.kernels, 3);
  ck_assert_int_eq(verdict.damaged, 2);
  ft_store_close(store);
}
END_TEST

/* Where a row is not found by what its text says, it is lost: verify tells so, of a user's files
 * and of one to ship, and a repair brings the trial back. The kernel can be compiled again. */
static const char *const misplaced[] = {
    "UPDATE trials SET bucket = bucket || ' causal' WHERE id = 1",
    "UPDATE trials SET class = class || ' causal' WHERE id = 1",
    "UPDATE trials SET device = 'nvidia-h200/sm_90/1' WHERE id = 1",
    "UPDATE trials SET target = 'sm_91' WHERE id = 1",
    "UPDATE trials SET policy = policy || '2' WHERE id = 1",
    "UPDATE trials SET outcome = 'wrong' WHERE id = 1",
    "UPDATE trials SET at = at + 1 WHERE id = 1",
    "UPDATE trials SET templates = zeroblob(32) WHERE id = 1",
    "UPDATE kernels SET key = zeroblob(32) WHERE id = 1",
    "UPDATE kernels SET source = zeroblob(32) WHERE id = 1",
    "UPDATE kernels SET target = 'sm_91' WHERE id = 1"};

START_TEST(a_row_in_a_wrong_place_is_damaged) {
  const bool of_trials = strstr(misplaced[_i], "trials") != NULL;
  const char *const file = of_trials ? tuning : kernels_db;
  struct ft_bundle_verdict bundle;
  struct ft_store_verdict verdict;
  struct ft_choice choice;
  struct ft_request request = request_of(PROBLEM);
  const struct ft_digest templates = digest_of_text("templates 1");
  const struct ft_query query = {
      .request = &request, .device = CLASS_H200, .target = "sm_90", .templates = &templates};
  const int64_t rows = number_of(tuning, "SELECT count(*) FROM trials");
  struct ft_store *store = open_store(&fixture);
  assert_ok(ft_store_verify_bundle(store, file, &bundle));
  ft_store_close(store);
  run_sql(file, misplaced[_i]);
  store = open_store(&fixture);
  assert_status(ft_store_verify_bundle(store, file, &bundle), FT_E_CACHE);
  ck_assert_int_eq(bundle.damaged, 1);
  assert_ok(ft_store_verify(store, true, &verdict));
  ck_assert(verdict.damaged == 1 && verdict.left == 0);
  ft_store_verdict_free(&verdict);
  assert_ok(ft_store_verify(store, false, &verdict));
  ck_assert_int_eq(verdict.damaged, 0);
  ft_store_verdict_free(&verdict);
  ck_assert_int_eq(number_of(tuning, "SELECT count(*) FROM trials"), rows);
  ck_assert_int_eq(number_of(kernels_db, "SELECT count(*) FROM kernels"), of_trials ? 3 : 2);
  assert_ok(ft_store_choose(store, &query, &choice));
  ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
  const struct ft_config expected = config_number(0);
  ck_assert(ft_config_compare(&choice.config, &expected) == 0);
  ft_store_close(store);
}
END_TEST

static const char *const misleading[] = {
    "sideways", "forward bf16 d64 hq16 hkv16 b2 nq1024 nk1024 causal", /* of another class */
};

/* The columns are copies to search by: one that no version could have written misleads nobody. */
START_TEST(a_bucket_that_cannot_be_is_passed_over) {
  struct ft_choice choice;
  char sql[200];
  const struct ft_request request = request_of(NEARBY);
  const struct ft_digest templates = digest_of_text("templates 1");
  const struct ft_query query = {
      .request = &request, .device = CLASS_H200, .target = "sm_90", .templates = &templates};
  snprintf(sql, sizeof sql, "UPDATE trials SET bucket = '%s' WHERE id = 1", misleading[_i]);
  run_sql(tuning, sql);
  struct ft_store *const store = open_store(&fixture);
  const struct ft_config expected = config_number(1);
  assert_ok(ft_store_choose(store, &query, &choice));
  ck_assert_int_eq(choice.hit, FT_HIT_NEAR);
  ck_assert_int_eq(ft_config_compare(&choice.config, &expected), 0);
  ft_store_close(store);
}
END_TEST

/* A trial that differs from what is searched for in one thing, which its columns hide. */
START_TEST(what_a_column_says_and_the_text_does_not_is_passed_over) {
  struct ft_choice choice;
  struct ft_trial trial = make_trial(_i == 0 ? NEARBY : PROBLEM, _i == 1 ? CLASS_H100 : CLASS_H200,
                                     9, 1); /* faster than all */
  const struct ft_trial sought = make_trial(PROBLEM, CLASS_H200, 0, 100);
  const struct ft_request request = request_of(PROBLEM);
  const struct ft_query query = {.request = &request,
                                 .device = CLASS_H200,
                                 .target = "sm_90",
                                 .policy = sought.policy,
                                 .templates = &sought.templates};
  if (_i == 2) snprintf(trial.policy, sizeof trial.policy, "another/1");
  if (_i == 3) trial.outcome = FT_OUTCOME_WRONG;
  if (_i == 4) trial.templates = digest_of_text("others");
  struct ft_store *store = open_store(&fixture);
  assert_ok(ft_store_trial_put(store, &trial));
  ft_store_close(store);
  run_sql(tuning, "UPDATE trials SET (bucket, class, device, target, policy, outcome, templates) = "
                  "(SELECT bucket, class, device, target, policy, outcome, templates FROM trials "
                  "WHERE id = 1) WHERE id = 4");
  store = open_store(&fixture);
  assert_ok(ft_store_choose(store, &query, &choice));
  ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
  ck_assert_int_eq(ft_config_compare(&choice.config, &sought.config), 0);
  ft_store_close(store);
}
END_TEST

/* Trials of other templates are the second choice; the note says so. */
START_TEST(near_trials_of_other_templates_are_named_so) {
  struct ft_choice choice;
  const struct ft_request request = request_of(NEARBY);
  const struct ft_digest templates = digest_of_text("templates 2");
  const struct ft_query query = {
      .request = &request, .device = CLASS_H200, .target = "sm_90", .templates = &templates};
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_choose(store, &query, &choice));
  ck_assert_int_eq(choice.hit, FT_HIT_NEAR);
  ck_assert_ptr_nonnull(strstr(choice.note, "other templates"));
  ck_assert_ptr_nonnull(strstr(choice.note, "nearest bucket"));
  const struct ft_query any = {
      .request = &request, .device = "nobody-knows/sm_90/0", .target = "sm_90"};
  assert_ok(ft_store_choose(store, &any, &choice));
  ck_assert_int_eq(choice.hit, FT_HIT_NEAR);
  ck_assert_ptr_null(strstr(choice.note, "other templates"));
  ck_assert_ptr_nonnull(strstr(choice.note, "another device"));
  ft_store_close(store);
}
END_TEST

static const char *const spoilt_recipes[] = {
    "UPDATE recipes SET source = x''", "UPDATE recipes SET source = x'0011'",
    "UPDATE recipes SET identity = x''", "UPDATE recipes SET identity = zeroblob(32)"};

START_TEST(a_damaged_recipe_is_a_miss_and_put_again) {
  const struct ft_digest recipe = digest_of_text("a recipe"), source = digest_of_text("a source");
  struct ft_digest back;
  struct ft_store *const store = open_store(&fixture);
  ft_store_recipe_put(store, &recipe, &source);
  assert_ok(ft_store_recipe_get(store, &recipe, &back));
  run_sql(kernels_db, spoilt_recipes[_i]);
  assert_status(ft_store_recipe_get(store, &recipe, &back), FT_E_NOT_FOUND);
  ft_store_recipe_put(store, &recipe, &source);
  assert_ok(ft_store_recipe_get(store, &recipe, &back));
  ck_assert(ft_digest_equal(&back, &source));
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

static bool note_outcome(void *payload, const struct ft_trial *trial) {
  char *const seen = payload;
  const size_t length = strlen(seen);
  snprintf(seen + length, 200 - length, " %s%s", ft_outcome_name(trial->outcome),
           trial->is_default ? "*" : "");
  return true;
}

/* Whatever was put first. */
START_TEST(trials_are_listed_by_outcome_and_the_default_first) {
  static const enum ft_outcome outcomes[] = {FT_OUTCOME_TIMEOUT,  FT_OUTCOME_WRONG,
                                             FT_OUTCOME_SCREENED, FT_OUTCOME_OK,
                                             FT_OUTCOME_COMPILE,  FT_OUTCOME_OK};
  enum { COUNT = sizeof outcomes / sizeof *outcomes };
  const struct ft_request request = request_of(NEARBY);
  for (int turn = 0; turn < 2; turn++) {
    char seen[200] = "", folder[128];
    snprintf(folder, sizeof folder, "%s/%d", fixture.root, turn);
    struct ft_store *const store =
        open_store_with(&fixture, (struct ft_store_options){.folder = folder});
    for (int i = 0; i < COUNT; i++) {
      const int k = turn ? COUNT - 1 - i : i;
      struct ft_trial trial = make_trial(NEARBY, CLASS_H200, k, 100);
      trial.outcome = outcomes[k];
      trial.is_default = k == COUNT - 1;
      assert_ok(ft_store_trial_put(store, &trial));
    }
    assert_ok(ft_store_trials(store, &request, NULL, note_outcome, seen));
    ck_assert_str_eq(seen, " ok* ok screened compile wrong timeout");
    ft_store_close(store);
  }
}
END_TEST

/* Whoever only looks kernels up leaves damage and dates as they are while somebody writes. */
START_TEST(a_look_up_beside_a_writer_changes_nothing) {
  struct ft_kernel back;
  sqlite3 *writer = NULL;
  run_sql(kernels_db, "UPDATE kernels SET text = text || ' ' WHERE id = 1; "
                      "UPDATE kernels SET used = 5 WHERE id = 2");
  struct ft_store *const store = open_store(&fixture);
  assert_has(&fixture, store, &kernels[2]);
  ck_assert_int_eq(sqlite3_open(kernels_db, &writer), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(writer, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
  assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
  assert_has(&fixture, store, &kernels[1]);
  sqlite3_close(writer);
  ck_assert_int_eq(number_of(kernels_db, "SELECT count(*) FROM kernels WHERE used = 5"), 1);
  ck_assert_int_eq(number_of(kernels_db, "SELECT count(*) FROM kernels"), 3);
  assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
  assert_has(&fixture, store, &kernels[1]);
  ck_assert_int_eq(number_of(kernels_db, "SELECT count(*) FROM kernels WHERE used = 5"), 0);
  ck_assert_int_eq(number_of(kernels_db, "SELECT count(*) FROM kernels"), 2);
  ft_store_close(store);
}
END_TEST

/* Those of one bucket in the user's file and in memory are one spot. */
START_TEST(an_export_has_what_is_in_memory_once) {
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 3, 120);
  int64_t trials = 0, images = 0;
  char file[160];
  snprintf(file, sizeof file, "%s/sm_90.fatune", fixture.root);
  setenv("FATUNE_CACHE", "ro", 1);
  struct ft_store *const store = open_store(&fixture);
  unsetenv("FATUNE_CACHE");
  assert_ok(ft_store_trial_put(store, &trial));
  assert_ok(export_store(store, "sm_90", NULL, file, &trials, &images));
  ft_store_close(store);
  ck_assert_int_eq(number_of(file, "SELECT count(*) FROM trials"), trials);
  ck_assert_int_eq(number_of(file, "SELECT count(DISTINCT identity) FROM trials"), trials);
  ck_assert_int_ge(trials, 1);
  ck_assert_int_eq(images, trials);
}
END_TEST

START_TEST(an_export_takes_the_place_of_a_file_alone) {
  char place[160];
  struct ft_store *const store = open_store(&fixture);
  snprintf(place, sizeof place, "%s/folder", fixture.root);
  ck_assert_int_eq(mkdir(place, 0700), 0);
  assert_status(export_store(store, "sm_90", NULL, place, NULL, NULL), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "it is a folder"));
  snprintf(place, sizeof place, "%s/pipe", fixture.root);
  ck_assert_int_eq(mkfifo(place, 0600), 0);
  assert_status(export_store(store, "sm_90", NULL, place, NULL, NULL), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "it is a device, pipe or socket"));
  snprintf(place, sizeof place, "%s/new", fixture.root);
  struct ft_export export = {.may_be_empty = false};
  assert_status(ft_store_export(store, "sm_90", CLASS_H100, place, &export), FT_E_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "on " CLASS_H100));
  ck_assert_int_ne(access(place, F_OK), 0);
  ft_store_close(store);
}
END_TEST

/* Under whatever name. In its place an export would lose the trials that are no winners. */
START_TEST(an_export_does_not_take_the_place_of_its_store) {
  struct ft_export export = {.may_be_empty = true};
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 3, 120);
  char link[160], elsewhere[] = P_tmpdir "/fatune-test-XXXXXX";
  struct ft_store *store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 700);
  assert_ok(ft_store_trial_put(store, &trial));
  const int64_t trials = number_of(ft_store_tuning_path(store), "SELECT count(*) FROM trials");
  assert_ok(ft_store_kernel_put(store, &kernel));
  snprintf(link, sizeof link, "%s/linked.fatune", fixture.root);
  ck_assert_int_eq(symlink(ft_store_kernels_path(store), link), 0);
  const char *const own[] = {ft_store_tuning_path(store), ft_store_kernels_path(store), link};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    assert_status(ft_store_export(store, "sm_80", NULL, own[i], &export), FT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(ft_detail(), "it is the cache that is exported"));
  }
  assert_has(&fixture, store, &kernel);
  ck_assert_int_eq(number_of(ft_store_tuning_path(store), "SELECT count(*) FROM trials"), trials);
  const int other = mkstemp(elsewhere); /* on another file system, it may be */
  ck_assert_int_ge(other, 0);
  close(other);
  assert_ok(ft_store_export(store, "sm_80", NULL, elsewhere, &export));
  ft_store_close(store);
  store = open_store_with(&fixture, (struct ft_store_options){.memory_only = true});
  assert_ok(ft_store_export(store, "sm_80", NULL, elsewhere, &export)); /* it has no files */
  ft_store_close(store);
  unlink(elsewhere);
  ft_kernel_free(&kernel);
}
END_TEST

/* A winner a bucket, device and policy. */
START_TEST(winners_are_counted_by_race) {
  struct ft_store_stats stats;
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 3, 50);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.winners, 1);
  snprintf(trial.policy, sizeof trial.policy, "another/1");
  assert_ok(ft_store_trial_put(store, &trial));
  trial = make_trial(PROBLEM, CLASS_H100, 3, 50);
  assert_ok(ft_store_trial_put(store, &trial));
  trial = make_trial(NEARBY, CLASS_H200, 3, 50);
  assert_ok(ft_store_trial_put(store, &trial));
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.trials, 6);
  ck_assert_int_eq(stats.winners, 4);
  ft_store_close(store);
}
END_TEST

Suite *make_store_rows_suite(void) {
  Suite *const suite = suite_create("store_rows");
  TCase *const tests = tcase_create("rows");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, the_kernel_of_a_config_is_of_a_sound_row);
  tcase_add_loop_test(tests, a_row_under_another_key_is_damaged, 0,
                      sizeof other_keys / sizeof *other_keys);
  tcase_add_loop_test(tests, a_row_in_a_wrong_place_is_damaged, 0,
                      (int)(sizeof misplaced / sizeof misplaced[0]));
  tcase_add_test(tests, a_bundle_with_rows_of_another_version_is_sound);
  tcase_add_loop_test(tests, a_bucket_that_cannot_be_is_passed_over, 0,
                      sizeof misleading / sizeof *misleading);
  tcase_add_loop_test(tests, what_a_column_says_and_the_text_does_not_is_passed_over, 0, 5);
  tcase_add_test(tests, near_trials_of_other_templates_are_named_so);
  tcase_add_test(tests, winners_are_counted_by_race);
  tcase_add_loop_test(tests, a_damaged_recipe_is_a_miss_and_put_again, 0,
                      sizeof spoilt_recipes / sizeof *spoilt_recipes);
  tcase_add_test(tests, trials_are_listed_by_outcome_and_the_default_first);
  tcase_add_test(tests, a_look_up_beside_a_writer_changes_nothing);
  tcase_add_test(tests, an_export_has_what_is_in_memory_once);
  tcase_add_test(tests, an_export_takes_the_place_of_a_file_alone);
  tcase_add_test(tests, an_export_does_not_take_the_place_of_its_store);
  suite_add_tcase(suite, tests);
  return suite;
}
