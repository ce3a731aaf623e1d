/* test_store_edges.c: what stores seldom meet: folders with signs in their names, places that may
 * only be read, headers with one wrong byte, arguments at the edge of what is allowed.
 * in -> out: such a case -> what is found, what is refused and why -> Check suite. */
#include "tests/suites.h"

#include <fcntl.h>
#include <limits.h>

#include "cache/claims.h"
#include "cache/file_bytes.h"
#include "cache/folders.h"
#include "cache/place.h"
#include "cache/rows.h"
#include "cache/samples.h"
#include "cache/trust_keys.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

static struct fixture fixture;
static struct ft_kernel kernels[2];
static const char *const names[] = {"tuning.db", "kernels.db"};

static void set_up(void) {
  fixture_open(&fixture);
  for (int i = 0; i < 2; i++) kernels[i] = make_kernel(&fixture.dice, 9000);
}

static void tear_down(void) {
  ck_assert_int_eq(seteuid(getuid()), 0);
  for (int i = 0; i < 2; i++) ft_kernel_free(&kernels[i]);
  fixture_close(&fixture);
}

static void path_of(const char *folder, const char *name, char path[256]) {
  snprintf(path, 256, "%.180s/%.60s", folder, name);
}

static void fill_in(const char *folder) {
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
  trial.kernel = kernels[0].key;
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.folder = folder});
  assert_ok(ft_store_kernel_put(store, &kernels[0]));
  assert_ok(ft_store_trial_put(store, &trial));
  ft_store_close(store);
}

static void assert_filled(const char *folder) {
  struct ft_store_stats stats;
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.folder = folder});
  assert_has(&fixture, store, &kernels[0]);
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.trials, 1);
  ft_store_close(store);
}

/* -- places --------------------------------------------------------------------------------- */

/* '?' begins parameters in the names that SQLite takes, '%' an escape. */
START_TEST(any_name_will_do_for_a_folder) {
  char folder[256], path[300];
  path_of(fixture.root, "a?mode=memory#b%41 'c", folder);
  fill_in(folder);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    ck_assert_msg(access(path, F_OK) == 0, "%s", path);
  }
  assert_filled(folder);
  assert_warnings(&fixture, 0);
}
END_TEST

/* From here on the folder belongs to somebody whom permissions bind, and it is he who reads. */
static void be_an_ordinary_user(const char *folder) {
  enum { NOBODY = 65534 };
  if (geteuid() != 0) return;
  char path[256];
  ck_assert_int_eq(chmod(fixture.root, 0755), 0);
  for (int i = 0; i < 2; i++) {
    path_of(folder, names[i], path);
    ck_assert_int_eq(chown(path, NOBODY, NOBODY), 0);
  }
  ck_assert_int_eq(chown(folder, NOBODY, NOBODY), 0);
  ck_assert_int_eq(seteuid(NOBODY), 0);
}

static void forbid_writing(const char *folder) {
  char path[256];
  for (int i = 0; i < 2; i++) {
    path_of(folder, names[i], path);
    ck_assert_int_eq(chmod(path, 0400), 0);
  }
  ck_assert_int_eq(chmod(folder, 0500), 0);
}

START_TEST(a_store_that_may_only_be_read_is_read) {
  fill_in(fixture.folder);
  be_an_ordinary_user(fixture.folder);
  forbid_writing(fixture.folder);
  assert_filled(fixture.folder);
  assert_warnings(&fixture, 0);
  struct ft_store *const store = open_store(&fixture);
  assert_status(ft_store_kernel_put(store, &kernels[1]), FT_E_CACHE);
  assert_has(&fixture, store, &kernels[1]); /* in memory */
  ft_store_close(store);
  assert_warnings(&fixture, 1);
  assert_filled(fixture.folder);
}
END_TEST

/* A write-ahead log's shared memory cannot be made beside a file that is merged from there. */
START_TEST(a_store_that_may_only_be_read_is_merged_from) {
  char own[256], path[256];
  int64_t trials, kernel_count;
  path_of(fixture.root, "own", own);
  ck_assert_int_eq(mkdir(own, 0700), 0);
  fill_in(fixture.folder);
  if (geteuid() == 0) ck_assert_int_eq(chown(own, 65534, 65534), 0);
  be_an_ordinary_user(fixture.folder);
  forbid_writing(fixture.folder);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.folder = own});
  for (int i = 0; i < 2; i++) {
    path_of(fixture.folder, names[i], path);
    assert_ok(ft_store_merge(store, path, &trials, &kernel_count));
    ck_assert_int_eq(i == 0 ? trials : kernel_count, 1);
  }
  ft_store_close(store);
  assert_filled(own);
}
END_TEST

START_TEST(a_folder_is_named_by_what_is_set) {
  static const struct {
    const char *given, *own, *base, *home, *name;
  } cases[] = {{"/given", "/own", "/base", "/home", "/given"},
               {"", "/own", "/base", "/home", "/own"},
               {NULL, "", "/base", "/home", "/base/fatune"},
               {NULL, NULL, "relative", "/home", "/home/.cache/fatune"},
               {NULL, NULL, NULL, "relative", NULL}};
  static const char *const variables[] = {"FATUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const values[] = {cases[i].own, cases[i].base, cases[i].home};
    char *name = NULL;
    for (int k = 0; k < 3; k++)
      if (values[k])
        setenv(variables[k], values[k], 1);
      else
        unsetenv(variables[k]);
    const int status = ft_folder_name(FT_FOLDER_KERNELS, cases[i].given, &name);
    ck_assert_int_eq(status, cases[i].name ? FT_OK : FT_E_NOT_FOUND);
    ck_assert_pstr_eq(name, cases[i].name);
    free(name);
  }
}
END_TEST

static int keys_in(const char *folder) {
  struct ft_public_key *keys = NULL;
  char command[600], reason[256];
  int count = 0, refused = 0;
  snprintf(command, sizeof command,
           "mkdir -p '%s' && cp '" FATUNE_TESTS_DIR "/signed/test.pub' '%s/one.pub' && "
           "cp '%s/one.pub' '%s/one.key' && cp '%s/one.pub' '%s/.pub' && chmod -R go-w '%s'",
           folder, folder, folder, folder, folder, folder, folder);
  ck_assert_int_eq(system(command), 0);
  assert_ok(ft_trusted_keys(&keys, &count, &refused, reason));
  ck_assert_msg(refused == 0, "%s", reason);
  free(keys);
  return count;
}

START_TEST(trusted_keys_lie_where_settings_lie) {
  char home[256], folder[300];
  path_of(fixture.root, "home", home);
  setenv("HOME", home, 1);
  setenv("XDG_CONFIG_HOME", "relative", 1);
  const int system_keys = keys_in(fixture.folder); /* a folder that nobody looks into */
  snprintf(folder, sizeof folder, "%s/.config/fatune/trusted", home);
  ck_assert_int_eq(keys_in(folder), system_keys + 1);
  setenv("HOME", "relative", 1);
  ck_assert_int_eq(keys_in(folder), system_keys);
  setenv("XDG_CONFIG_HOME", home, 1);
  ck_assert_int_eq(keys_in(folder), system_keys);
  snprintf(folder, sizeof folder, "%s/fatune/trusted", home);
  ck_assert_int_eq(keys_in(folder), system_keys + 1);
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("HOME");
  ck_assert_int_eq(keys_in(folder), system_keys);
}
END_TEST

START_TEST(links_may_lead_too_far) {
  static char target[3000], path[PATH_MAX];
  char link[256], *real = NULL;
  path_of(fixture.root, "link", link);
  for (size_t i = 0; i < sizeof target - 1; i++) target[i] = i % 100 ? 'n' : '/';
  ck_assert_int_eq(symlink(target, link), 0);
  strcpy(path, link);
  for (size_t i = strlen(link), n = 0; i < 2000; i++) path[i] = n++ % 100 ? 'n' : '/';
  assert_status(ft_place_check(path, &real), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "its name is too long"));
  assert_ok(ft_place_check("/../..", &real));
  ck_assert_str_eq(real, "/");
  free(real);
}
END_TEST

START_TEST(a_folder_has_no_bytes) {
  void *bytes = NULL;
  size_t size = 0;
  assert_status(ft_file_bytes(fixture.root, 100, &bytes, &size), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "it is not a plain file"));
  ck_assert_ptr_null(bytes);
}
END_TEST

/* -- files ---------------------------------------------------------------------------------- */

/* Each byte of the header by which SQLite would take the file for another kind of its own. */
START_TEST(one_wrong_byte_of_the_header_is_mended) {
  static const struct {
    int at, value;
  } wrong[] = {{18, 0}, {18, 3}, {19, 0}, {19, 3}, {21, 65}, {22, 31}, {23, 1}, {47, 5}, {59, 2}};
  char path[256];
  fill_in(fixture.folder);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct ft_store_verdict verdict;
    for (int k = 0; k < 2; k++) {
      const unsigned char byte = (unsigned char)wrong[i].value;
      path_of(fixture.folder, names[k], path);
      const int file = open(path, O_WRONLY);
      ck_assert_int_eq(pwrite(file, &byte, 1, wrong[i].at), 1);
      close(file);
    }
    fixture.warning_count = 0;
    struct ft_store *const store = open_store(&fixture);
    assert_ok(ft_store_verify(store, true, &verdict));
    ck_assert_msg(verdict.left == 0 && verdict.mended[0].saved == 1 && verdict.mended[1].saved == 1,
                  "byte %d: %lld left", wrong[i].at, (long long)verdict.left);
    ft_store_verdict_free(&verdict);
    ft_store_close(store);
    assert_filled(fixture.folder);
  }
}
END_TEST

/* Another process may delete or replace a file; what is put then is in the file of that name. */
START_TEST(a_deleted_file_is_made_again) {
  char path[256];
  fill_in(fixture.folder);
  struct ft_store *store = open_store(&fixture);
  assert_ok(ft_store_kernel_put(store, &kernels[0]));
  for (int i = 0; i < 2; i++) {
    path_of(fixture.folder, names[i], path);
    ck_assert_int_eq(unlink(path), 0);
  }
  assert_ok(ft_store_kernel_put(store, &kernels[1]));
  ft_store_close(store);
  store = open_store(&fixture);
  assert_has(&fixture, store, &kernels[1]);
  ft_store_close(store);
}
END_TEST

START_TEST(an_export_may_have_a_name_without_a_folder) {
  struct ft_export export = {.may_be_empty = false};
  fill_in(fixture.folder);
  ck_assert_int_eq(chdir(fixture.root), 0);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_export(store, "sm_90", NULL, "bundle", &export));
  ft_store_close(store);
  ck_assert_int_eq(export.trials, 1);
  ck_assert_int_eq(access("bundle", F_OK), 0);
}
END_TEST

START_TEST(whoever_wants_no_warnings_gets_none) {
  const struct ft_store_options options = {.folder = fixture.folder};
  struct ft_kernel back;
  char path[256];
  struct ft_store *store = NULL;
  fill_in(fixture.folder);
  path_of(fixture.folder, "kernels.db", path);
  ck_assert_int_eq(truncate(path, 5000), 0);
  assert_ok(ft_store_open(&store, &options));
  assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
  ft_store_close(store);
}
END_TEST

/* -- kernels -------------------------------------------------------------------------------- */

START_TEST(kernels_that_are_none_are_refused) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernel = kernels[0];
  kernel.image = NULL;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  kernel = kernels[0];
  kernel.image_size = 0;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  kernel.image_size = (size_t)FT_IMAGE_LIMIT + 1;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  kernel = kernels[0];
  kernel.image_digest.bytes[0] ^= 1;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  kernel = kernels[0];
  kernel.key.bytes[0] ^= 1;
  assert_status(ft_store_kernel_put(store, &kernel), FT_E_ARGUMENT);
  ft_store_close(store);
}
END_TEST

static const char *const modes[] = {"rw", "ro", "memory"};

START_TEST(a_forgotten_kernel_is_not_found) {
  struct ft_kernel back;
  setenv("FATUNE_CACHE", modes[_i], 1);
  struct ft_store *const store = open_store(&fixture);
  for (int i = 0; i < 2; i++) assert_ok(ft_store_kernel_put(store, &kernels[i]));
  for (int i = 0; i < 2; i++) assert_ok(ft_store_kernel_forget(store, &kernels[0].key));
  assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
  assert_has(&fixture, store, &kernels[1]);
  ft_store_close(store);
  unsetenv("FATUNE_CACHE");
}
END_TEST

/* Its file stays as it is; the store passes the kernel over, and that one alone. */
START_TEST(a_kernel_of_a_layer_is_forgotten_while_the_store_lives) {
  char layers[256], file[256];
  struct ft_kernel back;
  path_of(fixture.root, "layers", layers);
  path_of(layers, "sm_90.fatune", file);
  ck_assert_int_eq(mkdir(layers, 0755), 0);
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 2, 120);
  fill_in(fixture.folder);
  struct ft_store *store = open_store(&fixture);
  trial.kernel = kernels[1].key;
  trial.bucket = request_of("forward bf16 d64 hq16 hkv16 b2 nq4096 nk4096 causal");
  assert_ok(ft_store_kernel_put(store, &kernels[1]));
  assert_ok(ft_store_trial_put(store, &trial));
  assert_ok(export_store(store, "sm_90", NULL, file, NULL, NULL));
  ft_store_close(store);
  nftw(fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  for (int mode = 0; mode < 3; mode++) {
    setenv("FATUNE_CACHE", modes[mode], 1);
    store = open_store_with(&fixture, (struct ft_store_options){.system_path = layers});
    unsetenv("FATUNE_CACHE");
    assert_has(&fixture, store, &kernels[0]);
    for (int i = 0; i < 2; i++) assert_ok(ft_store_kernel_forget(store, &kernels[0].key));
    assert_status(ft_store_kernel_get(store, &kernels[0].key, &back), FT_E_NOT_FOUND);
    assert_has(&fixture, store, &kernels[1]);
    ft_store_close(store);
  }
}
END_TEST

/* Of one process, too; and where nothing can be locked everybody goes on. */
START_TEST(a_claim_is_of_one_alone) {
  struct ft_claim first, second, other;
  struct ft_store *store = open_store(&fixture);
  ft_claim_open(&first, store, &kernels[0].key);
  ft_claim_open(&second, store, &kernels[0].key);
  ft_claim_open(&other, store, &kernels[1].key);
  ck_assert(ft_claim_try(&first) && !ft_claim_try(&second) && ft_claim_try(&other));
  ft_claim_close(&first);
  ck_assert(ft_claim_try(&second));
  ft_claim_close(&second);
  ft_claim_close(&second);
  ft_claim_close(&other);
  ft_store_close(store);
  store = open_store(&fixture);
  ft_claim_open(&first, store, &kernels[0].key);
  ck_assert_int_eq(close(first.file), 0); /* as where files have no locks */
  ck_assert(ft_claim_try(&first));
  ck_assert_int_eq(first.file, -1);
  ft_store_close(store);
  setenv("FATUNE_CACHE", "ro", 1);
  store = open_store(&fixture);
  unsetenv("FATUNE_CACHE");
  ft_claim_open(&first, store, &kernels[0].key);
  ck_assert_int_eq(first.file, -1);
  ft_store_close(store);
  store = open_store_with(&fixture, (struct ft_store_options){.memory_only = 1});
  ft_claim_open(&first, store, &kernels[0].key);
  ft_claim_open(&second, store, &kernels[0].key);
  ck_assert(ft_claim_try(&first) && ft_claim_try(&second));
  ft_claim_close(&first);
  ft_store_close(store);
}
END_TEST

/* -- near trials ---------------------------------------------------------------------------- */

/* An octave away, each. */
#define OF_LENGTH(nq) "forward bf16 d128 hq16 hkv16 b2 nq" nq " nk4096 causal"
#define TWICE         "forward bf16 d128 hq16 hkv16 b4 nq4096 nk4096 causal"

static const struct {
  const char *request, *device;
} nearest_first[] = {
    {OF_LENGTH("2048"), CLASS_H200},    {OF_LENGTH("8192"), CLASS_H200},   {TWICE, CLASS_H200},
    {PROBLEM, "a/sm_90/132"},           {PROBLEM, "b/sm_90/132"},          {PROBLEM, CLASS_H100},
    {PROBLEM, "nvidia-gh200/sm_90/16"}, {PROBLEM, "nobody-knows/sm_90/0"},
};

enum { NEAR = sizeof nearest_first / sizeof *nearest_first };

/* Which is taken does not depend on the order in which trials were put. */
START_TEST(the_nearest_trial_is_taken_whatever_came_first) {
  const struct ft_request wanted = request_of(PROBLEM);
  const struct ft_digest templates = digest_of_text("templates 1");
  const struct ft_query query = {
      .request = &wanted, .device = CLASS_H200, .target = "sm_90", .templates = &templates};
  int left[NEAR], count = 0;
  struct ft_choice choice;
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.memory_only = 1});
  for (int i = _i; i < NEAR; i++) left[count++] = i;
  while (count > 0) {
    const int at = dice_below(&fixture.dice, count), i = left[at];
    const struct ft_trial trial =
        make_trial(nearest_first[i].request, nearest_first[i].device, i, 100);
    assert_ok(ft_store_trial_put(store, &trial));
    left[at] = left[--count];
  }
  const struct ft_config expected = config_number(_i);
  assert_ok(ft_store_choose(store, &query, &choice));
  ck_assert_int_eq(choice.hit, FT_HIT_NEAR);
  ck_assert_msg(ft_config_compare(&choice.config, &expected) == 0, "seed %llu: %s",
                (unsigned long long)fixture.dice.seed, choice.note);
  ft_store_close(store);
}
END_TEST

/* -- words and numbers ---------------------------------------------------------------------- */

START_TEST(devices_without_target_or_count_have_none) {
  static const struct {
    const char *device, *target;
    int count;
  } devices[] = {{"nvidia-h200/sm_90/132", "sm_90", 132},
                 {"a/b/sm_80/108", "sm_80", 108},
                 {"", "", 0},
                 {"sm_90", "", 0},
                 {"sm_90/132", "", 132},
                 {"a//132", "", 132},
                 {"a/0123456789abcdef/1", "", 1},
                 {"a/sm_90/0", "sm_90", 0},
                 {"a/sm_90/-1", "sm_90", 0},
                 {"a/sm_90/100000", "sm_90", 0},
                 {"a/sm_90/", "sm_90", 0}};
  char target[16];
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    ft_device_target(devices[i].device, target);
    ck_assert_str_eq(target, devices[i].target);
    ck_assert_int_eq(ft_device_multiprocessors(devices[i].device), devices[i].count);
  }
}
END_TEST

START_TEST(no_samples_have_no_percentile) {
  ck_assert_double_eq(ft_percentile(NULL, 0, 0.5), 0);
  const double one = 7, three[] = {1, 2, 4};
  ck_assert_double_eq(ft_percentile(&one, 1, 0.2), 7);
  ck_assert_double_eq(ft_percentile(three, 3, 0.75), 3);
}
END_TEST

Suite *make_store_edges_suite(void) {
  Suite *const suite = suite_create("store_edges");
  TCase *const tests = tcase_create("edges");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, any_name_will_do_for_a_folder);
  tcase_add_test(tests, a_store_that_may_only_be_read_is_read);
  tcase_add_test(tests, a_store_that_may_only_be_read_is_merged_from);
  tcase_add_test(tests, a_folder_is_named_by_what_is_set);
  tcase_add_test(tests, trusted_keys_lie_where_settings_lie);
  tcase_add_test(tests, links_may_lead_too_far);
  tcase_add_test(tests, a_folder_has_no_bytes);
  tcase_add_test(tests, one_wrong_byte_of_the_header_is_mended);
  tcase_add_test(tests, a_deleted_file_is_made_again);
  tcase_add_test(tests, an_export_may_have_a_name_without_a_folder);
  tcase_add_test(tests, whoever_wants_no_warnings_gets_none);
  tcase_add_test(tests, kernels_that_are_none_are_refused);
  tcase_add_loop_test(tests, a_forgotten_kernel_is_not_found, 0, 3);
  tcase_add_test(tests, a_kernel_of_a_layer_is_forgotten_while_the_store_lives);
  tcase_add_test(tests, a_claim_is_of_one_alone);
  tcase_add_loop_test(tests, the_nearest_trial_is_taken_whatever_came_first, 0, NEAR);
  tcase_add_test(tests, devices_without_target_or_count_have_none);
  tcase_add_test(tests, no_samples_have_no_percentile);
  suite_add_tcase(suite, tests);
  return suite;
}
