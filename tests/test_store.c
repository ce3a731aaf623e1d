/* test_store.c: a store keeps what it is given, makes nothing it need not, and stays in its bounds.
 * in -> out: random kernels and trials -> Check suite. */
#include "tests/suites.h"

#include <pthread.h>

#include "cache/schema.h"
#include "tests/store_fixture.h"

static struct fixture fixture;

static void set_up(void) {
  fixture_open(&fixture);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static void assert_misses(struct ft_store *store, const struct ft_kernel *kernel) {
  struct ft_kernel back;
  assert_status(ft_store_kernel_get(store, &kernel->key, &back), FT_E_NOT_FOUND);
}

/* -- files ---------------------------------------------------------------------------------- */

START_TEST(looking_up_makes_no_file) {
  struct ft_store *const store = open_store(&fixture);
  const struct ft_kernel absent = {.image_size = 0};
  assert_misses(store, &absent);
  int64_t checked = -1, damaged = -1, deleted = -1;
  assert_ok(verify_store(store, true, &checked, &damaged));
  assert_ok(ft_store_gc(store, 0, &deleted));
  ck_assert_int_eq(checked + damaged + deleted, 0);
  ft_store_close(store);
  ck_assert_int_eq(access(fixture.folder, F_OK), -1);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(files_are_private_and_as_specified) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 1000);
  const struct ft_trial trial = make_trial("forward bf16 d64 nq512", CLASS_H200, 1, 10);
  umask(0);
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_trial_put(store, &trial));
  const char *const paths[] = {ft_store_kernels_path(store), ft_store_tuning_path(store)};
  struct stat state;
  ck_assert_int_eq(stat(fixture.folder, &state), 0);
  ck_assert_int_eq(state.st_mode & 0777, 0700);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(stat(paths[i], &state), 0);
    ck_assert_int_eq(state.st_mode & 0777, 0600);
    ck_assert_int_eq(number_of(paths[i], "PRAGMA application_id"), 0x46415455);
    ck_assert_int_eq(number_of(paths[i], "PRAGMA user_version"), FT_SCHEMA_VERSION);
    ck_assert_int_eq(number_of(paths[i], "PRAGMA page_size"), 8192);
    ck_assert_int_eq(number_of(paths[i], "PRAGMA auto_vacuum"), 2);
    ck_assert_int_eq(number_of(paths[i], "SELECT journal_mode = 'wal' FROM pragma_journal_mode"),
                     1);
  }
  ft_kernel_free(&kernel);
  ft_store_close(store);
}
END_TEST

static void assert_path(const char *got, const char *format, const char *root) {
  char expected[256];
  snprintf(expected, sizeof expected, format, root);
  ck_assert_str_eq(got, expected);
}

START_TEST(folders_follow_the_environment) {
  const struct ft_store_options options = {.warn = note_warning, .payload = &fixture};
  struct ft_store *store = NULL;
  setenv("HOME", fixture.root, 1);
  unsetenv("XDG_CACHE_HOME");
  setenv("XDG_STATE_HOME", "relative/is/to/be/ignored", 1);
  assert_ok(ft_store_open(&store, &options));
  assert_path(ft_store_kernels_path(store), "%s/.cache/fatune/kernels.db", fixture.root);
  assert_path(ft_store_tuning_path(store), "%s/.local/state/fatune/tuning.db", fixture.root);
  const struct ft_trial trial = make_trial("forward bf16 d64 nq512", CLASS_H200, 1, 10);
  assert_ok(ft_store_trial_put(store, &trial)); /* makes the parents too */
  ck_assert_int_eq(access(ft_store_tuning_path(store), F_OK), 0);
  ck_assert_int_ne(access(ft_store_kernels_path(store), F_OK), 0);
  ft_store_close(store);

  setenv("XDG_STATE_HOME", "/x/state", 1);
  setenv("XDG_CACHE_HOME", "/x/cache", 1);
  assert_ok(ft_store_open(&store, &options));
  ck_assert_str_eq(ft_store_tuning_path(store), "/x/state/fatune/tuning.db");
  ck_assert_str_eq(ft_store_kernels_path(store), "/x/cache/fatune/kernels.db");
  ft_store_close(store);

  setenv("FATUNE_CACHE_DIR", "/y", 1);
  assert_ok(ft_store_open(&store, &options));
  ck_assert_str_eq(ft_store_tuning_path(store), "/y/tuning.db");
  ck_assert_str_eq(ft_store_kernels_path(store), "/y/kernels.db");
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(memory_only_touches_nothing) {
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.memory_only = 1});
  struct ft_kernel kernel = make_kernel(&fixture.dice, 5000);
  const struct ft_trial trial = make_trial("forward bf16 d64 nq512", CLASS_H200, 1, 10);
  ck_assert_ptr_null(ft_store_tuning_path(store));
  ck_assert_ptr_null(ft_store_kernels_path(store));
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_trial_put(store, &trial));
  assert_has(&fixture, store, &kernel);
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.kernels, 1);
  ck_assert_int_eq(stats.trials, 1);
  ck_assert_int_eq(stats.tuning_file_bytes + stats.kernels_file_bytes, 0);
  ft_store_close(store);
  ck_assert_int_eq(access(fixture.folder, F_OK), -1);
  assert_warnings(&fixture, 0);
  ft_kernel_free(&kernel);
}
END_TEST

START_TEST(a_store_deleted_under_us_is_made_again) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel first = make_kernel(&fixture.dice, 3000);
  struct ft_kernel second = make_kernel(&fixture.dice, 3000);
  assert_ok(ft_store_kernel_put(store, &first));
  fixture_close(&fixture);
  ck_assert_int_eq(mkdir(fixture.root, 0700), 0);
  assert_misses(store, &first);
  assert_ok(ft_store_kernel_put(store, &second));
  ft_store_close(store);
  struct ft_store *const again = open_store(&fixture);
  assert_has(&fixture, again, &second);
  ft_store_close(again);
  assert_warnings(&fixture, 0);
  ft_kernel_free(&first);
  ft_kernel_free(&second);
}
END_TEST

/* -- kernels -------------------------------------------------------------------------------- */

START_TEST(kernels_are_kept) {
  static const size_t sizes[] = {1, 100, 8191, 8192, 8193, 52144, 3 << 20};
  enum { COUNT = sizeof sizes / sizeof sizes[0] };
  struct ft_kernel kernels[COUNT];
  struct ft_store *store = open_store(&fixture);
  for (int i = 0; i < COUNT; i++) {
    kernels[i] = make_kernel(&fixture.dice, sizes[i]);
    assert_misses(store, &kernels[i]);
    assert_ok(ft_store_kernel_put(store, &kernels[i]));
    assert_ok(ft_store_kernel_put(store, &kernels[i])); /* twice is fine */
    assert_has(&fixture, store, &kernels[i]);
  }
  ft_store_close(store);
  store = open_store(&fixture);
  for (int i = 0; i < COUNT; i++) assert_has(&fixture, store, &kernels[i]);
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.kernels, COUNT);
  ck_assert_int_eq(stats.kernel_bytes, 1 + 100 + 8191 + 8192 + 8193 + 52144 + (3 << 20));
  ck_assert_int_gt(stats.kernels_file_bytes, 0);
  ck_assert_int_eq(stats.hits, COUNT);
  ck_assert_int_eq(stats.misses, 0);
  ft_store_close(store);
  for (int i = 0; i < COUNT; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

/* Readers must not make each other wait, nor wear the disk. */
START_TEST(reading_writes_nothing) {
  struct ft_store *store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 300);
  assert_ok(ft_store_kernel_put(store, &kernel));
  char path[256], log[300];
  snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
  snprintf(log, sizeof log, "%s-wal", path);
  ft_store_close(store);
  const struct bytes before = read_bytes(path);
  store = open_store(&fixture);
  assert_has(&fixture, store, &kernel);
  struct stat state;
  if (stat(log, &state) == 0) ck_assert_int_eq(state.st_size, 0);
  ft_store_close(store);
  const struct bytes after = read_bytes(path);
  ck_assert_uint_eq(before.size, after.size);
  ck_assert_int_eq(memcmp(before.data, after.data, before.size), 0);
  free(before.data);
  free(after.data);
  ft_kernel_free(&kernel);
}
END_TEST

START_TEST(unsound_kernels_are_refused) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 500);
  ((unsigned char *)kernel.image)[7] ^= 1;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  assert_misses(store, &kernel);
  const size_t size = kernel.image_size;
  kernel.image_size = 0;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  kernel.image_size = (64U << 20) + 1;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  kernel.image_size = size;
  ((unsigned char *)kernel.image)[7] ^= 1;
  assert_ok(ft_store_kernel_put(store, &kernel));
  ft_kernel_free(&kernel);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* A key is that of the kernel's source and compiler, so of one source only the very kernel is
 * found. */
START_TEST(kernels_of_one_source_do_not_mix) {
  static const char *const compilers[] = {"12.9.41+0a", "13.0.88+0b", "13.0.88+0c"};
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernels[3], back;
  for (int i = 0; i < 3; i++) {
    kernels[i] = make_kernel(&fixture.dice, 700);
    kernels[i].source = kernels[0].source;
    assert_status(ft_store_kernel_put(store, &kernels[i]), i == 0 ? FT_OK : FT_E_ARGUMENT);
    snprintf(kernels[i].nvrtc, sizeof kernels[i].nvrtc, "%s", compilers[i]);
    assert_status(ft_store_kernel_put(store, &kernels[i]), FT_E_ARGUMENT);
    kernels[i].key = ft_kernel_key(&kernels[i].source, compilers[i]);
    assert_ok(ft_store_kernel_put(store, &kernels[i]));
  }
  for (int i = 0; i < 3; i++) assert_has(&fixture, store, &kernels[i]);
  assert_ok(ft_store_kernel_forget(store, &kernels[2].key));
  assert_misses(store, &kernels[2]);
  assert_has(&fixture, store, &kernels[1]);
  assert_status(ft_store_kernel_get(store, &kernels[0].source, &back), FT_E_NOT_FOUND);
  for (int i = 0; i < 3; i++) ft_kernel_free(&kernels[i]);
  ft_store_close(store);
}
END_TEST

START_TEST(least_recently_used_goes_first) {
  enum { COUNT = 6 };
  struct ft_store *store = open_store(&fixture);
  struct ft_kernel kernels[COUNT];
  for (int i = 0; i < COUNT; i++) {
    kernels[i] = make_kernel(&fixture.dice, 30000);
    assert_ok(ft_store_kernel_put(store, &kernels[i]));
  }
  char path[256];
  snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
  ft_store_close(store);
  /* Two hours old, the first the oldest; then 0 is used. */
  run_sql(path, "UPDATE kernels SET used = CAST(strftime('%s') AS INTEGER) - 7200 + id");
  store = open_store(&fixture);
  assert_has(&fixture, store, &kernels[0]);
  int64_t deleted = 0;
  assert_status(ft_store_gc(store, -1, &deleted), FT_E_ARGUMENT);
  assert_ok(ft_store_gc(store, INT64_MAX, &deleted));
  ck_assert_int_eq(deleted, 0);
  assert_ok(ft_store_gc(store, 3 * 5 * 8192, &deleted)); /* 30000 bytes are counted as 5 pages */
  ck_assert_int_eq(deleted, 3);
  assert_has(&fixture, store, &kernels[0]);
  for (int i = 1; i < 4; i++) assert_misses(store, &kernels[i]);
  for (int i = 4; i < COUNT; i++) assert_has(&fixture, store, &kernels[i]);
  assert_ok(ft_store_gc(store, 0, &deleted));
  ck_assert_int_eq(deleted, 3);
  ft_store_close(store);
  struct stat state;
  ck_assert_int_eq(stat(path, &state), 0);
  ck_assert_int_lt(state.st_size, COUNT * 30000 * 2 / 3); /* the room is given back */
  for (int i = 0; i < COUNT; i++) ft_kernel_free(&kernels[i]);
}
END_TEST

START_TEST(use_is_written_once_an_hour) {
  struct ft_store *store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 300);
  assert_ok(ft_store_kernel_put(store, &kernel));
  char path[256];
  snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
  const int64_t now = (int64_t)time(NULL);
  static const struct {
    int age;
    bool renewed;
  } cases[] = {{0, false},   {1800, false}, {3500, false},
               {3700, true}, {-3700, true}, {-100, false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char sql[128];
    snprintf(sql, sizeof sql, "UPDATE kernels SET used = %lld", (long long)(now - cases[i].age));
    run_sql(path, sql);
    assert_has(&fixture, store, &kernel);
    const int64_t used = number_of(path, "SELECT used FROM kernels");
    if (cases[i].renewed)
      ck_assert_int_ge(used, now);
    else
      ck_assert_int_eq(used, now - cases[i].age);
    if (cases[i].renewed) ck_assert_int_lt(used, now + 60);
  }
  ft_store_close(store);
  ft_kernel_free(&kernel);
}
END_TEST

START_TEST(the_cap_holds_by_itself) {
  const int64_t cap = 2 << 20;
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.kernel_bytes_cap = cap});
  for (int i = 0; i < 120; i++) {
    struct ft_kernel kernel = make_kernel(&fixture.dice, 40000);
    assert_ok(ft_store_kernel_put(store, &kernel));
    assert_has(&fixture, store, &kernel); /* the newest is never the one to go */
    ft_kernel_free(&kernel);
  }
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_lt(stats.kernel_bytes, cap);
  ck_assert_int_gt(stats.kernel_bytes, cap / 2);
  char path[256];
  snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
  ft_store_close(store);
  struct stat state;
  ck_assert_int_eq(stat(path, &state), 0);
  ck_assert_int_lt(state.st_size, cap + cap / 4);
}
END_TEST

/* -- threads and several stores ------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 15 };

struct worker {
  struct ft_store *store;
  struct dice dice;
  int failures;
};

static void *work(void *payload) {
  struct worker *const worker = payload;
  for (int i = 0; i < ROUNDS; i++) {
    struct ft_kernel kernel = make_kernel(&worker->dice, 5000), back;
    struct ft_trial trial = make_trial("forward bf16 d64 nq512", CLASS_H200, i, 10);
    trial.kernel = kernel.key;
    if (ft_store_kernel_put(worker->store, &kernel) != FT_OK ||
        ft_store_trial_put(worker->store, &trial) != FT_OK ||
        ft_store_kernel_get(worker->store, &kernel.key, &back) != FT_OK)
      worker->failures++;
    else {
      if (!same_kernel(&kernel, &back)) worker->failures++;
      ft_kernel_free(&back);
    }
    ft_kernel_free(&kernel);
  }
  return NULL;
}

START_TEST(threads_share_one_store_or_two) {
  struct ft_store *const stores[2] = {open_store(&fixture), open_store(&fixture)};
  struct worker workers[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){stores[_i ? i % 2 : 0], fixture.dice, 0};
    workers[i].dice.state += (uint64_t)i * 1000003;
    ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    ck_assert_int_eq(workers[i].failures, 0);
  }
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(stores[1], &stats));
  ck_assert_int_eq(stats.kernels, THREADS * ROUNDS);
  ck_assert_int_eq(stats.trials, THREADS * ROUNDS);
  ft_store_close(stores[0]);
  ft_store_close(stores[1]);
  assert_warnings(&fixture, 0);
}
END_TEST

Suite *make_store_suite(void) {
  Suite *const suite = suite_create("store");
  TCase *const tests = tcase_create("store");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, looking_up_makes_no_file);
  tcase_add_test(tests, files_are_private_and_as_specified);
  tcase_add_test(tests, folders_follow_the_environment);
  tcase_add_test(tests, memory_only_touches_nothing);
  tcase_add_test(tests, a_store_deleted_under_us_is_made_again);
  tcase_add_test(tests, kernels_are_kept);
  tcase_add_test(tests, reading_writes_nothing);
  tcase_add_test(tests, unsound_kernels_are_refused);
  tcase_add_test(tests, kernels_of_one_source_do_not_mix);
  tcase_add_test(tests, least_recently_used_goes_first);
  tcase_add_test(tests, use_is_written_once_an_hour);
  tcase_add_test(tests, the_cap_holds_by_itself);
  tcase_add_loop_test(tests, threads_share_one_store_or_two, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
