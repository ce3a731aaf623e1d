/* test_store_modes.c: FATUNE_CACHE: whose caches are read, and which are written.
 * in -> out: off, ro, rw, memory -> what is found, what lies on the disk -> Check suite. */
#include "tests/suites.h"

#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

static struct fixture fixture;
static struct ft_kernel kernels[3]; /* the user's, the layer's, a new one */
static char layers[128];

static void set_up(void) {
  char file[160];
  fixture_open(&fixture);
  for (int i = 0; i < 3; i++) kernels[i] = make_kernel(&fixture.dice, 9000);
  snprintf(layers, sizeof layers, "%s/layers", fixture.root);
  snprintf(file, sizeof file, "%s/sm_90.fatune", layers);
  ck_assert_int_eq(mkdir(layers, 0755), 0);
  for (int i = 1; i >= 0; i--) { /* the layer's first, which is exported */
    struct ft_store *const store = open_store(&fixture);
    struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 100);
    trial.kernel = kernels[i].key;
    assert_ok(ft_store_kernel_put(store, &kernels[i]));
    assert_ok(ft_store_trial_put(store, &trial));
    if (i == 1) assert_ok(export_store(store, "sm_90", NULL, file, NULL, NULL));
    ft_store_close(store);
    if (i == 1) nftw(fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  }
}

static void tear_down(void) {
  for (int i = 0; i < 3; i++) ft_kernel_free(&kernels[i]);
  fixture_close(&fixture);
}

static struct ft_store *open_with_layer(const char *mode) {
  setenv("FATUNE_CACHE", mode, 1);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.system_path = layers});
  unsetenv("FATUNE_CACHE");
  return store;
}

static bool has(struct ft_store *store, int kernel) {
  struct ft_kernel back;
  const int status = ft_store_kernel_get(store, &kernels[kernel].key, &back);
  if (status == FT_OK) ft_kernel_free(&back);
  return status == FT_OK;
}

static const struct {
  const char *mode;
  bool user, layer, written;
  int warnings;
} modes[] = {{"rw", true, true, true, 0},       {"ro", true, true, false, 0},
             {"memory", false, true, false, 0}, {"off", false, false, false, 0},
             {"", true, true, true, 0},         {"yes", true, true, true, 1}};

START_TEST(a_mode_says_what_is_read_and_written) {
  const char *const mode = modes[_i].mode;
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 5, 50);
  struct ft_store *store = open_with_layer(mode);
  ck_assert_int_eq(has(store, 0), modes[_i].user);
  ck_assert_int_eq(has(store, 1), modes[_i].layer);
  assert_ok(ft_store_kernel_put(store, &kernels[2])); /* a choice, no fault */
  assert_ok(ft_store_trial_put(store, &trial));
  ck_assert(has(store, 2));
  ft_store_close(store);
  assert_warnings(&fixture, modes[_i].warnings);
  if (modes[_i].warnings) ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "off, ro, rw, memory"));
  store = open_store(&fixture);
  ck_assert(has(store, 0));
  ck_assert_int_eq(has(store, 2), modes[_i].written);
  ft_store_close(store);
}
END_TEST

/* What would be gone with the process is not taken in, but for a store that its maker wants so. */
START_TEST(a_mode_says_whether_rows_are_taken_in) {
  const char *const mode = modes[_i].mode;
  char file[160], message[64];
  int64_t trials = 0, taken = 0;
  snprintf(file, sizeof file, "%s/sm_90.fatune", layers);
  snprintf(message, sizeof message, "FATUNE_CACHE is '%s': nothing", mode);
  struct ft_store *store = open_with_layer(mode);
  assert_status(ft_store_import(store, file, &trials, &taken),
                modes[_i].written ? FT_OK : FT_E_CACHE);
  ck_assert_int_eq(taken, modes[_i].written);
  ck_assert_msg(modes[_i].user || strstr(ft_detail(), message), "%s", ft_detail());
  ft_store_close(store);
  store = open_store_with(&fixture, (struct ft_store_options){.memory_only = 1});
  assert_ok(ft_store_import(store, file, &trials, &taken));
  ck_assert(taken == 1 && has(store, 1));
  ft_store_close(store);
}
END_TEST

/* Nothing is made where nothing is to be written. */
START_TEST(read_only_makes_no_files) {
  nftw(fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  struct ft_store *const store = open_with_layer("ro");
  assert_ok(ft_store_kernel_put(store, &kernels[2]));
  ck_assert(has(store, 2));
  int64_t deleted = 0, trials = 0, taken = 0;
  assert_ok(ft_store_gc(store, 0, &deleted)); /* of the memory */
  char file[160];
  snprintf(file, sizeof file, "%s/sm_90.fatune", layers);
  assert_status(ft_store_import(store, file, &trials, &taken), FT_E_CACHE);
  ft_store_close(store);
  ck_assert_int_ne(access(fixture.folder, F_OK), 0);
}
END_TEST

START_TEST(a_folder_may_be_the_root) {
  setenv("FATUNE_CACHE", "ro", 1);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.folder = "/"});
  unsetenv("FATUNE_CACHE");
  ck_assert_str_eq(ft_store_tuning_path(store), "//tuning.db");
  ck_assert(!has(store, 0));
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* The user's file is deleted beneath an open store, whose check then finds nothing. */
START_TEST(a_deleted_file_is_not_checked) {
  int64_t checked = 0, damaged = 0;
  char path[160];
  struct ft_store *const store = open_store(&fixture);
  ck_assert(has(store, 0));
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  ck_assert_int_eq(unlink(path), 0);
  assert_ok(verify_store(store, true, &checked, &damaged));
  ck_assert(checked == 1 && damaged == 0); /* the trial of tuning.db */
  ck_assert_int_ne(access(path, F_OK), 0);
  ft_store_close(store);
}
END_TEST

START_TEST(what_may_only_be_read_is_not_mended) {
  enum { NOBODY = 65534 };
  int64_t checked = 0, damaged = 0;
  char path[160];
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  run_sql(path, "UPDATE kernels SET text = text || ' '");
  if (geteuid() == 0) {
    ck_assert_int_eq(chmod(fixture.root, 0755) | chown(path, NOBODY, NOBODY) |
                         chown(fixture.folder, NOBODY, NOBODY),
                     0);
    ck_assert_int_eq(seteuid(NOBODY), 0);
  }
  ck_assert_int_eq(chmod(path, 0400) | chmod(fixture.folder, 0500), 0);
  struct ft_store *const store = open_store(&fixture);
  const int status = verify_store(store, true, &checked, &damaged);
  ft_store_close(store);
  ck_assert_int_eq(chmod(fixture.folder, 0700) | seteuid(getuid()), 0);
  ck_assert_msg(status == FT_E_IO && strstr(ft_detail(), "is read-only"), "%s", ft_detail());
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM kernels"), 1);
}
END_TEST

START_TEST(a_file_without_a_signature_is_checked_unless_one_is_asked_for) {
  struct ft_bundle_verdict verdict;
  char file[160];
  snprintf(file, sizeof file, "%s/sm_90.fatune", layers);
  for (int asked = 0; asked < 2; asked++) {
    if (asked) setenv("FATUNE_TRUST", "signed", 1);
    struct ft_store *const store = open_store(&fixture);
    assert_status(ft_store_verify_bundle(store, file, &verdict), asked ? FT_E_CACHE : FT_OK);
    ck_assert_msg(strstr(verdict.how, "there is no signature") != NULL, "%s", verdict.how);
    ck_assert(!verdict.is_signed);
    ck_assert_int_eq(verdict.kernels, asked ? 0 : 1);
    ft_store_close(store);
  }
  unsetenv("FATUNE_TRUST");
}
END_TEST

/* Kernels of 100,000 bytes each into a store that holds at most so much. */
static int64_t kernels_kept(const char *cap, int count) {
  setenv("FATUNE_CACHE_CAP", cap, 1);
  struct ft_store *const store = open_store(&fixture);
  struct ft_store_stats stats;
  for (int i = 0; i < count; i++) {
    struct ft_kernel kernel = make_kernel(&fixture.dice, 100000);
    assert_ok(ft_store_kernel_put(store, &kernel));
    ft_kernel_free(&kernel);
  }
  assert_ok(ft_store_stats(store, &stats));
  ft_store_close(store);
  unsetenv("FATUNE_CACHE_CAP");
  return stats.kernels;
}

START_TEST(the_cap_is_as_the_environment_says) {
  static const char *const wrong[] = {
      "-1", "0", "1X", "M", "12MB", "99999999999T", "9223372036854775807", "99999999999999999999"};
  ck_assert_int_eq(kernels_kept("", 12), 13);
  ck_assert_int_eq(kernels_kept("2G", 1), 14);
  ck_assert_int_eq(kernels_kept("600K", 1), 4); /* down to nine tenths of it, tables and all */
  ck_assert_int_le(kernels_kept("1000000", 8), 9);
  assert_warnings(&fixture, 0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_int_gt(kernels_kept(wrong[i], 8), 8);
    assert_warnings(&fixture, 1);
    ck_assert_ptr_nonnull(strstr(fixture.warnings[0], wrong[i]));
    fixture.warning_count = 0;
  }
  static const char *const small[] = {"1", "4096", "255K", "262143"};
  for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
    ck_assert_int_eq(kernels_kept(small[i], 2), 1);
    assert_warnings(&fixture, 1);
    ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "taken as 256K"));
    fixture.warning_count = 0;
  }
}
END_TEST

static int64_t file_bytes(const char *path) {
  struct stat state;
  ck_assert_int_eq(stat(path, &state), 0);
  return (int64_t)state.st_size;
}

/* Whatever the kernels' sizes are, and whatever else than images a file holds. */
START_TEST(the_file_never_outgrows_the_cap) {
  static const size_t sizes[] = {700, 9000, 40000, 100000};
  for (int64_t cap = 256 << 10; cap <= 1024 << 10; cap *= 2) {
    struct ft_store *const store =
        open_store_with(&fixture, (struct ft_store_options){.kernel_bytes_cap = cap});
    char path[256];
    snprintf(path, sizeof path, "%s", ft_store_kernels_path(store));
    int64_t most = 0;
    for (int i = 0; i < 60; i++) {
      struct ft_kernel kernel = make_kernel(&fixture.dice, sizes[dice_below(&fixture.dice, 4)]);
      assert_ok(ft_store_kernel_put(store, &kernel));
      assert_has(&fixture, store, &kernel); /* the newest stays */
      ft_kernel_free(&kernel);
      const int64_t kept =
          number_of(path, "SELECT (page_count - freelist_count) * page_size FROM "
                          "pragma_page_count, pragma_freelist_count, pragma_page_size");
      ck_assert_int_le(kept, cap);
      most = kept > most ? kept : most;
    }
    ck_assert_int_gt(most, cap / 4 * 3); /* a large one may have to make room for itself at last */
    ft_store_close(store);
    ck_assert_int_le(file_bytes(path), cap);
  }
}
END_TEST

/* None stays where there is room for none. */
static int64_t rows_walked; /* by statements that have no index to go by */

static int note_walk(unsigned what, void *payload, void *statement, void *time) {
  (void)what, (void)payload, (void)time;
  rows_walked += sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_FULLSCAN_STEP, 1);
  return 0;
}

static int watch(sqlite3 *handle, char **message, const struct sqlite3_api_routines *routines) {
  (void)message, (void)routines;
  return sqlite3_trace_v2(handle, SQLITE_TRACE_PROFILE, note_walk, NULL);
}

/* A writer has the file for itself meanwhile, so a put that walks over all kernels keeps the others
 * waiting the longer the more there are. */
START_TEST(a_put_walks_over_no_kernels) {
  enum { MANY = 200 };
  typedef void extension(void);
  ck_assert_int_eq(sqlite3_auto_extension((extension *)(void *)watch), SQLITE_OK);
  struct ft_store *const store = open_store(&fixture);
  for (int i = 0; i < MANY; i++) {
    struct ft_kernel kernel = make_kernel(&fixture.dice, 900);
    if (i == MANY - 1) rows_walked = 0;
    assert_ok(ft_store_kernel_put(store, &kernel));
    ft_kernel_free(&kernel);
  }
  ft_store_close(store);
  sqlite3_reset_auto_extension();
  ck_assert_msg(rows_walked < MANY / 10, "%lld rows", (long long)rows_walked);
}
END_TEST

START_TEST(a_cap_below_an_empty_file_keeps_no_kernel) {
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.kernel_bytes_cap = 1});
  struct ft_kernel kernel = make_kernel(&fixture.dice, 40000);
  struct ft_store_stats stats;
  assert_ok(ft_store_kernel_put(store, &kernel));
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.kernels, 0);
  ft_store_close(store);
  ft_kernel_free(&kernel);
}
END_TEST

/* A slip of whoever set a variable is told with what is allowed; the stores are none the worse. */
START_TEST(a_value_that_is_none_is_told_and_no_fault) {
  static const char *const told[][2] = {
      {"FATUNE_CACHE", "FATUNE_CACHE is 'nome'; allowed: off, ro, rw, memory; taken as rw"},
      {"FATUNE_CACHE_CAP",
       "FATUNE_CACHE_CAP is 'nome'; allowed: bytes from 256K on, or with a unit: 64M, 2G; "
       "taken as 2G"},
      {"FATUNE_TRUST", "FATUNE_TRUST is 'nome'; allowed: any, owner, signed; taken as signed"}};
  for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
    setenv(told[i][0], "nome", 1);
    setenv("FATUNE_SYSTEM_PATH", "", 1);
    struct ft_store *const store = open_store(&fixture);
    unsetenv(told[i][0]);
    ck_assert(has(store, 0));
    assert_warnings(&fixture, 1);
    ck_assert_str_eq(fixture.warnings[0], told[i][1]);
    ck_assert_int_eq(ft_store_faults(store), 0);
    ft_store_close(store);
    fixture.warning_count = 0;
  }
}
END_TEST

/* ---- layers that are not used ---- */

enum { LAYERS_MOST = 64, TOO_MANY = 3 };

START_TEST(layers_too_many_are_told) {
  const char *const last[TOO_MANY] = {"l64.fatune", "l65.fatune", "sm_90.fatune"};
  char line[512];
  int count = 0, used = 0;
  snprintf(line, sizeof line,
           "cd %s && for n in $(seq 0 %d); do cp sm_90.fatune $(printf l%%02d.fatune $n); done",
           layers, LAYERS_MOST + TOO_MANY - 2);
  ck_assert_int_eq(system(line), 0);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.system_path = layers});
  const struct ft_store_layer *const found = ft_store_layers(store, &count);
  ck_assert_int_eq(count, LAYERS_MOST + TOO_MANY);
  for (int i = 0; i < count; i++) used += found[i].used;
  ck_assert_int_eq(used, LAYERS_MOST);
  assert_warnings(&fixture, TOO_MANY);
  for (int i = 0; i < TOO_MANY; i++) {
    ck_assert_ptr_nonnull(strstr(fixture.warnings[i], last[i]));
    ck_assert_ptr_nonnull(strstr(fixture.warnings[i], "there are 64 layers before it"));
    ck_assert_ptr_nonnull(strstr(found[LAYERS_MOST + i].path, last[i]));
    ck_assert(!found[LAYERS_MOST + i].used);
  }
  ft_store_close(store);
}
END_TEST

START_TEST(a_folder_of_layers_that_cannot_be_listed_is_told) {
  char path[512];
  int count = 0;
  snprintf(path, sizeof path, "%s/sm_90.fatune:/nowhere::%s", layers, layers);
  struct ft_store *const store = open_store_with(
      &fixture, (struct ft_store_options){.system_path = path, .library_folder = "/dev/null"});
  const struct ft_store_layer *const found = ft_store_layers(store, &count);
  ck_assert_int_eq(count, 1);
  ck_assert(found[0].used);
  assert_warnings(&fixture, 1);
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "sm_90.fatune' are not used: Not a directory"));
  ft_store_close(store);
}
END_TEST

Suite *make_store_modes_suite(void) {
  Suite *const suite = suite_create("store_modes");
  TCase *const tests = tcase_create("modes");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, a_mode_says_what_is_read_and_written, 0,
                      (int)(sizeof modes / sizeof modes[0]));
  tcase_add_loop_test(tests, a_mode_says_whether_rows_are_taken_in, 0,
                      (int)(sizeof modes / sizeof modes[0]));
  tcase_add_test(tests, read_only_makes_no_files);
  tcase_add_test(tests, a_folder_may_be_the_root);
  tcase_add_test(tests, a_deleted_file_is_not_checked);
  tcase_add_test(tests, what_may_only_be_read_is_not_mended);
  tcase_add_test(tests, a_file_without_a_signature_is_checked_unless_one_is_asked_for);
  tcase_add_test(tests, the_cap_is_as_the_environment_says);
  tcase_add_test(tests, the_file_never_outgrows_the_cap);
  tcase_add_test(tests, a_put_walks_over_no_kernels);
  tcase_add_test(tests, a_cap_below_an_empty_file_keeps_no_kernel);
  tcase_add_test(tests, a_value_that_is_none_is_told_and_no_fault);
  tcase_add_test(tests, layers_too_many_are_told);
  tcase_add_test(tests, a_folder_of_layers_that_cannot_be_listed_is_told);
  suite_add_tcase(suite, tests);
  return suite;
}
