/* test_store_files.c: export, import, merge, system layers.
 * in -> out: files that are right, and files made to harm -> Check suite. */
#include "tests/suites.h"

#include <malloc.h>

#include "cache/schema.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"
#define SMALLER "forward bf16 d64 hq16 hkv16 b2 nq1024 nk1024"

static struct fixture fixture;
static char shipped[128];

static void set_up(void) {
  fixture_open(&fixture);
  snprintf(shipped, sizeof shipped, "%s/sm_90.fatune", fixture.root);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static struct ft_store *open_at(const char *name) {
  char folder[128];
  snprintf(folder, sizeof folder, "%s/%s", fixture.root, name);
  return open_store_with(&fixture, (struct ft_store_options){.folder = folder});
}

/* A trial and the kernel it names. */
static struct ft_kernel put_pair(struct ft_store *store, struct ft_trial trial) {
  struct ft_kernel kernel = make_kernel(&fixture.dice, 20000);
  trial.kernel = kernel.key;
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_trial_put(store, &trial));
  return kernel;
}

static struct ft_choice choose(struct ft_store *store, const char *request) {
  const struct ft_request asked = request_of(request);
  const struct ft_digest digest = digest_of_text("templates 1");
  const struct ft_query query = {.request = &asked,
                                 .device = CLASS_H200,
                                 .target = "sm_90",
                                 .policy = "events-warm/2",
                                 .templates = &digest};
  struct ft_choice choice;
  assert_ok(ft_store_choose(store, &query, &choice));
  return choice;
}

/* Two winners on sm_90, one of them of a search cut short, two losers, a winner on sm_80; exported
 * for sm_90. */
static void ship(struct ft_kernel kernels[2]) {
  struct ft_store *const store = open_at("from");
  struct ft_kernel loser = put_pair(store, make_trial(PROBLEM, CLASS_H200, 1, 200));
  struct ft_kernel elsewhere = put_pair(store, make_trial(PROBLEM, CLASS_A100, 1, 10));
  kernels[0] = put_pair(store, make_trial(PROBLEM, CLASS_H200, 2, 100));
  struct ft_kernel screened = put_pair(store, make_screened(PROBLEM, CLASS_H200, 4, 50));
  kernels[1] = put_pair(store, make_screened(SMALLER, CLASS_H100, 3, 10));
  int64_t trials = 0, count = 0;
  assert_ok(export_store(store, "sm_90", NULL, shipped, &trials, &count));
  ck_assert_int_eq(trials, 2);
  ck_assert_int_eq(count, 2);
  ft_kernel_free(&loser);
  ft_kernel_free(&elsewhere);
  ft_kernel_free(&screened);
  ft_store_close(store);
}

static void assert_counts(struct ft_store *store, int64_t trials, int64_t kernels) {
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.trials, trials);
  ck_assert_int_eq(stats.kernels, kernels);
}

static void assert_takes_in(struct ft_store *store, const char *file, int64_t trials,
                            int64_t kernels) {
  int64_t got_trials = -1, got_kernels = -1;
  assert_ok(ft_store_import(store, file, &got_trials, &got_kernels));
  ck_assert_int_eq(got_trials, trials);
  ck_assert_int_eq(got_kernels, kernels);
}

/* -- what is right -------------------------------------------------------------------------- */

START_TEST(exports_are_files_to_ship) {
  struct ft_kernel kernels[2];
  struct stat state;
  umask(077);
  ship(kernels);
  ck_assert_int_eq(stat(shipped, &state), 0);
  ck_assert_int_eq(state.st_mode & 0777, 0644);
  ck_assert_int_eq(number_of(shipped, "PRAGMA user_version"), FT_SCHEMA_VERSION);
  ck_assert_int_eq(number_of(shipped, "PRAGMA application_id"), 0x46415455);
  ck_assert_int_eq(number_of(shipped, "SELECT journal_mode = 'delete' FROM pragma_journal_mode"),
                   1);
  char listing[256];
  snprintf(listing, sizeof listing, "test $(ls %s | wc -l) = 2", fixture.root);
  ck_assert_int_eq(system(listing), 0); /* no temporary is left */
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

/* What else a store of round 1 holds: losers, other targets, kernels that were forgotten, a copy of
 * the rows in a layer. Its process's memory is full of other bytes, too. */
static void stir(struct ft_store *store, int64_t *deleted) {
  mallopt(M_PERTURB, 0x5a);
  struct ft_kernel loser = put_pair(store, make_trial(PROBLEM, CLASS_H200, 9, 500));
  struct ft_kernel elsewhere = put_pair(store, make_trial(PROBLEM, CLASS_A100, 1, 10));
  struct ft_kernel forgotten = make_kernel(&fixture.dice, 30000);
  assert_ok(ft_store_kernel_put(store, &forgotten));
  assert_ok(ft_store_kernel_forget(store, &forgotten.key));
  assert_ok(ft_store_gc(store, INT64_C(1) << 30, deleted));
  ft_kernel_free(&loser);
  ft_kernel_free(&elsewhere);
  ft_kernel_free(&forgotten);
}

/* A header tells which SQLite wrote a file: that is of the machine, not of the data. */
static void assert_no_version(const char *path) {
  struct bytes bytes = read_bytes(path);
  ck_assert_uint_gt(bytes.size, 100);
  ck_assert_mem_eq(bytes.data + 96, "\0\0\0\0", 4);
  free(bytes.data);
}

START_TEST(equal_data_gives_equal_files) {
  char files[2][160];
  struct ft_trial trials[4] = {
      make_trial(PROBLEM, CLASS_H200, 1, 10), make_trial(SMALLER, CLASS_H200, 2, 10),
      make_trial(SMALLER, CLASS_H100, 3, 10), make_trial(PROBLEM, CLASS_H100, 4, 10)};
  struct ft_kernel kernels[4];
  for (int i = 0; i < 4; i++) {
    kernels[i] = make_kernel(&fixture.dice, 9000);
    trials[i].kernel = kernels[i].key;
  }
  for (int round = 0; round < 2; round++) {
    struct ft_store *const store = open_at(round ? "a" : "b");
    int64_t deleted = 0;
    if (round) stir(store, &deleted);
    for (int i = 0; i < 4; i++) {
      const int k = round ? 3 - i : i;
      assert_ok(ft_store_kernel_put(store, &kernels[k]));
      assert_ok(ft_store_trial_put(store, &trials[k]));
    }
    snprintf(files[round], sizeof files[round], "%s/%d.fatune", fixture.root, round);
    assert_ok(export_store(store, "sm_90", NULL, files[round], NULL, NULL));
    ft_store_close(store);
  }
  mallopt(M_PERTURB, 0);
  assert_no_version(files[0]);
  struct bytes a = read_bytes(files[0]), b = read_bytes(files[1]);
  ck_assert_uint_eq(a.size, b.size);
  ck_assert_int_eq(memcmp(a.data, b.data, a.size), 0);
  free(a.data);
  free(b.data);
  for (int i = 0; i < 4; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

START_TEST(exports_go_by_device_and_policy) {
  struct ft_store *const store = open_at("from");
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 10);
  assert_ok(ft_store_trial_put(store, &trial));
  snprintf(trial.policy, sizeof trial.policy, "events-cold/1");
  assert_ok(ft_store_trial_put(store, &trial));
  trial.templates = digest_of_text("templates 2"); /* newer: these count, though slower */
  trial.at += 1;
  trial.median_us = 50;
  assert_ok(ft_store_trial_put(store, &trial));
  trial.at += 1; /* the same candidate again: its samples belong together */
  assert_ok(ft_store_trial_put(store, &trial));
  trial = make_trial(PROBLEM, CLASS_H100, 1, 10);
  assert_ok(ft_store_trial_put(store, &trial));
  trial = make_trial(SMALLER, CLASS_H200, 1, 10);
  trial.outcome = FT_OUTCOME_PREDICTED; /* shipped where nothing was measured */
  assert_ok(ft_store_trial_put(store, &trial));
  trial = make_trial(PROBLEM, CLASS_H200, 5, 1);
  trial.outcome = FT_OUTCOME_PREDICTED; /* not shipped: measured there */
  assert_ok(ft_store_trial_put(store, &trial));
  int64_t trials = 0, kernels = -1;
  assert_ok(export_store(store, "sm_90", CLASS_H200, shipped, &trials, &kernels));
  ck_assert_int_eq(trials, 1 + 2 + 1);
  ck_assert_int_eq(kernels, 0);
  assert_ok(export_store(store, "sm_90", NULL, shipped, &trials, &kernels)); /* replaces it */
  ck_assert_int_eq(trials, 5);
  assert_ok(export_store(store, "sm_75", NULL, shipped, &trials, &kernels));
  ck_assert_int_eq(trials, 0);
  assert_status(export_store(store, "sm_90", NULL, "/no/such/folder/x", &trials, &kernels),
                FT_E_CACHE);
  assert_status(export_store(store, "sm_90", NULL, fixture.root, &trials, &kernels), FT_E_CACHE);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(layers_serve_without_being_touched) {
  struct ft_kernel kernels[2], back;
  ship(kernels);
  struct bytes before = read_bytes(shipped);
  ck_assert_int_eq(chmod(shipped, 0444), 0);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.library_folder = fixture.root});
  assert_has(&fixture, store, &kernels[0]);
  assert_has(&fixture, store, &kernels[1]);
  const struct ft_choice choice = choose(store, PROBLEM);
  ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
  ck_assert(ft_digest_equal(&choice.kernel, &kernels[0].key));
  /* A kernel that the driver refused is passed over, and a new one of the same key is found. */
  assert_ok(ft_store_kernel_forget(store, &kernels[0].key));
  assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
  assert_ok(ft_store_kernel_put(store, &kernels[0]));
  assert_has(&fixture, store, &kernels[0]);
  ft_store_close(store);
  struct bytes after = read_bytes(shipped);
  ck_assert_uint_eq(before.size, after.size);
  ck_assert_int_eq(memcmp(before.data, after.data, before.size), 0);
  char beside[160];
  snprintf(beside, sizeof beside, "%s-wal", shipped);
  ck_assert_int_ne(access(beside, F_OK), 0);
  free(before.data);
  free(after.data);
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(layers_that_anybody_can_change_are_not_used) {
  struct ft_kernel kernels[2], back;
  ship(kernels);
  ck_assert_int_eq(chmod(shipped, 0666), 0);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.library_folder = fixture.root});
  assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
  ft_store_close(store);
  assert_warnings(&fixture, 1);
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

START_TEST(imports_add_what_is_new) {
  struct ft_kernel kernels[2];
  ship(kernels);
  struct ft_store *store = open_store(&fixture);
  assert_takes_in(store, shipped, 2, 2);
  assert_takes_in(store, shipped, 0, 0);
  assert_counts(store, 2, 2);
  for (int i = 0; i < 2; i++) assert_has(&fixture, store, &kernels[i]);
  ck_assert_int_eq(choose(store, PROBLEM).hit, FT_HIT_EXACT);
  ft_store_close(store);
  store = open_store_with(&fixture, (struct ft_store_options){.memory_only = 1});
  assert_takes_in(store, shipped, 2, 2);
  assert_has(&fixture, store, &kernels[1]);
  ft_store_close(store);
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(user_files_merge_while_in_use) {
  struct ft_store *const other = open_at("other"), *const store = open_store(&fixture);
  struct ft_kernel kernel = put_pair(other, make_trial(PROBLEM, CLASS_H200, 1, 10));
  int64_t trials = 0, kernels = 0;
  /* Still open there: the rows are in the write-ahead log only. */
  assert_ok(ft_store_merge(store, ft_store_tuning_path(other), &trials, &kernels));
  ck_assert_int_eq(trials, 1);
  ck_assert_int_eq(kernels, 0);
  assert_ok(ft_store_merge(store, ft_store_kernels_path(other), &trials, &kernels));
  ck_assert_int_eq(trials, 0);
  ck_assert_int_eq(kernels, 1);
  assert_has(&fixture, store, &kernel);
  ck_assert_int_eq(choose(store, PROBLEM).hit, FT_HIT_EXACT);
  assert_ok(ft_store_merge(store, ft_store_kernels_path(store), &trials, &kernels)); /* itself */
  ck_assert_int_eq(kernels, 0);
  ft_kernel_free(&kernel);
  ft_store_close(other);
  ft_store_close(store);
}
END_TEST

START_TEST(imports_keep_to_the_cap) {
  struct ft_kernel kernels[2];
  ship(kernels);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.kernel_bytes_cap = 115000});
  assert_takes_in(store, shipped, 2, 2);
  assert_counts(store, 2, 1);
  ft_store_close(store);
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

/* -- what is wrong -------------------------------------------------------------------------- */

/* SQL that spoils a good file; import must refuse it whole. */
static const char *const spoilers[] = {
    "PRAGMA application_id = 1",
    "PRAGMA user_version = 3",
    "PRAGMA user_version = 0",
    "DROP TABLE kernels",
    "ALTER TABLE trials DROP COLUMN text",
    "ALTER TABLE kernels RENAME COLUMN image TO picture",
    "ALTER TABLE trials RENAME TO t; CREATE VIEW trials AS SELECT * FROM t",
    "DROP TABLE trials; CREATE VIRTUAL TABLE trials USING fts5(id, text, identity)",
    "UPDATE kernels SET image = zeroblob(20000) WHERE id = 2",
    "UPDATE kernels SET image = zeroblob(67108865) WHERE id = 2",
    "UPDATE kernels SET image = x'' WHERE id = 2",
    "UPDATE kernels SET image = x'0011' WHERE id = 2",
    "UPDATE kernels SET text = replace(text, 'threads=128', 'threads=256') WHERE id = 2",
    "UPDATE kernels SET text = 5 WHERE id = 2",
    "UPDATE kernels SET log = 'harmless' WHERE id = 2",
    "UPDATE kernels SET identity = x'00' WHERE id = 1",
    "UPDATE trials SET text = replace(text, 'median_us=10', 'median_us=1')",
    "UPDATE trials SET text = text || char(0) || 'x' WHERE id = 1",
    "UPDATE trials SET text = printf('%.*c', 100000, 'x') WHERE id = 1",
    "UPDATE trials SET identity = text WHERE id = 2",
};

START_TEST(spoiled_files_are_refused_whole) {
  struct ft_kernel kernels[2];
  ship(kernels);
  sqlite3 *handle = NULL;
  ck_assert_int_eq(sqlite3_open(shipped, &handle), SQLITE_OK);
  const bool spoiled = sqlite3_exec(handle, spoilers[_i], NULL, NULL, NULL) == SQLITE_OK;
  sqlite3_close(handle);
  if (!spoiled && !strstr(spoilers[_i], "fts5")) /* not every SQLite has it */
    ck_abort_msg("could not spoil the file: %s", spoilers[_i]);
  struct bytes before = read_bytes(shipped);
  struct ft_store *const store = open_store(&fixture);
  int64_t trials = -1, count = -1;
  if (spoiled) {
    const int status = ft_store_import(store, shipped, &trials, &count);
    ck_assert_msg(status == FT_E_CACHE, "%s: %d %s", spoilers[_i], status, ft_detail());
    ck_assert_int_eq(trials + count, 0);
    ck_assert_ptr_nonnull(strstr(ft_detail(), shipped));
    assert_counts(store, 0, 0);
  }
  ft_store_close(store);
  /* As a layer it never gives out what differs from its digest either. */
  struct ft_store *const above =
      open_store_with(&fixture, (struct ft_store_options){.library_folder = fixture.root});
  for (int i = 0; i < 2; i++) {
    struct ft_kernel back;
    if (ft_store_kernel_get(above, &kernels[i].key, &back) != FT_OK) continue;
    ck_assert(same_kernel(&kernels[i], &back));
    ft_kernel_free(&back);
  }
  choose(above, PROBLEM);
  ft_store_close(above);
  struct bytes after = read_bytes(shipped);
  ck_assert_uint_eq(before.size, after.size);
  ck_assert_int_eq(memcmp(before.data, after.data, before.size), 0);
  free(before.data);
  free(after.data);
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

/* A file of others is refused for what is in its schema; in the user's own file it is not run. */
START_TEST(nothing_in_a_file_is_executed) {
  struct ft_kernel kernels[2];
  ship(kernels);
  run_sql(shipped, "CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM kernels; END");
  struct ft_store *const store = open_store(&fixture);
  int64_t trials, count;
  assert_status(ft_store_import(store, shipped, &trials, &count), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "schema"));
  run_sql(shipped, "DROP TRIGGER t");
  assert_takes_in(store, shipped, 2, 2);
  const char *const path = ft_store_kernels_path(store);
  run_sql(path, "CREATE TRIGGER t AFTER INSERT ON kernels BEGIN DELETE FROM kernels; END");
  struct ft_kernel kernel = make_kernel(&fixture.dice, 100);
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_counts(store, 2, 3);
  ft_kernel_free(&kernel);
  ft_store_close(store);
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
  assert_warnings(&fixture, 0);
}
END_TEST

/* What other processes have written lies in the log beside the file until it is folded in. */
START_TEST(a_file_in_use_is_verified_with_its_log) {
  struct ft_bundle_verdict verdict;
  struct ft_store *const store = open_store(&fixture);
  for (int i = 0; i < 2; i++) {
    const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 90);
    assert_ok(ft_store_trial_put(store, &trial));
    assert_ok(ft_store_verify_bundle(store, ft_store_tuning_path(store), &verdict));
    ck_assert_int_eq(verdict.trials, i + 1);
    ck_assert_int_eq(verdict.damaged, 0);
  }
  ft_store_close(store);
}
END_TEST

static const struct {
  const char *kind;
  int status;
} no_files[] = {{"missing", FT_E_IO},  {"folder", FT_E_ARGUMENT}, {"pipe", FT_E_ARGUMENT},
                {"empty", FT_E_CACHE}, {"text", FT_E_CACHE},      {"short", FT_E_CACHE},
                {"trials", FT_E_CACHE}};

START_TEST(what_is_no_database_is_refused) {
  struct ft_store *const store = open_store(&fixture);
  char path[128];
  int64_t trials = -1, kernels = -1;
  snprintf(path, sizeof path, "%s/x.fatune", fixture.root);
  const char *const kind = no_files[_i].kind;
  if (strcmp(kind, "folder") == 0) ck_assert_int_eq(mkdir(path, 0700), 0);
  if (strcmp(kind, "pipe") == 0) ck_assert_int_eq(mkfifo(path, 0600), 0);
  if (strcmp(kind, "empty") == 0) write_bytes(path, "", 0);
  if (strcmp(kind, "text") == 0) write_bytes(path, "version https://git-lfs", 23);
  if (strcmp(kind, "short") == 0) write_bytes(path, "SQLite format 3", 16);
  if (strcmp(kind, "trials") == 0) write_bytes(path, "bucket=\"forward d64\"", 20);
  assert_status(ft_store_import(store, path, &trials, &kernels), no_files[_i].status);
  ck_assert_ptr_nonnull(strstr(ft_detail(), path));
  ck_assert_int_eq(trials + kernels, 0);
  ft_store_close(store);
  assert_warnings(&fixture, 0); /* the caller is told; nobody else need be */

  struct ft_store *const above =
      open_store_with(&fixture, (struct ft_store_options){.library_folder = fixture.root});
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(above, &stats));
  ck_assert_int_eq(stats.layers, 0);
  ft_store_close(above);
  assert_warnings(&fixture, strcmp(kind, "missing") == 0 ? 0 : 1);
}
END_TEST

Suite *make_store_files_suite(void) {
  Suite *const suite = suite_create("store_files");
  TCase *const tests = tcase_create("files");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, exports_are_files_to_ship);
  tcase_add_test(tests, equal_data_gives_equal_files);
  tcase_add_test(tests, exports_go_by_device_and_policy);
  tcase_add_test(tests, layers_serve_without_being_touched);
  tcase_add_test(tests, layers_that_anybody_can_change_are_not_used);
  tcase_add_test(tests, imports_add_what_is_new);
  tcase_add_test(tests, user_files_merge_while_in_use);
  tcase_add_test(tests, imports_keep_to_the_cap);
  tcase_add_loop_test(tests, spoiled_files_are_refused_whole, 0,
                      (int)(sizeof spoilers / sizeof spoilers[0]));
  tcase_add_test(tests, nothing_in_a_file_is_executed);
  tcase_add_test(tests, a_file_in_use_is_verified_with_its_log);
  tcase_add_loop_test(tests, what_is_no_database_is_refused, 0,
                      (int)(sizeof no_files / sizeof no_files[0]));
  suite_add_tcase(suite, tests);
  return suite;
}
