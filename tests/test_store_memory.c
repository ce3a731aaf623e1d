/* test_store_memory.c: SQLite's n-th allocation fails: a status, nothing wrong stored, nothing
 * lost. in -> out: n -> puts, look-ups, imports, exports without memory -> Check suite. */
#include "tests/suites.h"

#include "tests/slow_tests.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

static struct fixture fixture;
static struct ft_kernel kernel;
static char shipped[128];

/* -- memory --------------------------------------------------------------------------------- */

static sqlite3_mem_methods real;
static long count, fail_at, armed; /* armed: the last fail_at that was not 0 */
static bool sticky;

static bool fails(void) {
  count++;
  return fail_at > 0 && (count == fail_at || (sticky && count > fail_at));
}

static void *allocate(int bytes) {
  return fails() ? NULL : real.xMalloc(bytes);
}

static void *reallocate(void *block, int bytes) {
  return fails() ? NULL : real.xRealloc(block, bytes);
}

static void take_over_memory(void) {
  ck_assert_int_eq(sqlite3_shutdown(), SQLITE_OK);
  ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real), SQLITE_OK);
  sqlite3_mem_methods failing = real;
  failing.xMalloc = allocate;
  failing.xRealloc = reallocate;
  ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
  ck_assert_int_eq(sqlite3_initialize(), SQLITE_OK);
}

static void arm(long n, bool for_ever) {
  count = 0;
  fail_at = n;
  if (n > 0) armed = n;
  sticky = for_ever;
}

/* -- what is done without memory ------------------------------------------------------------ */

static struct ft_trial the_trial(void) {
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
  trial.kernel = kernel.key;
  return trial;
}

static int put(struct ft_store *store) {
  const struct ft_trial trial = the_trial();
  const int status = ft_store_kernel_put(store, &kernel);
  const int second = ft_store_trial_put(store, &trial);
  return status != FT_OK ? status : second;
}

static int take_in(struct ft_store *store) {
  int64_t trials = 0, kernels = 0;
  return ft_store_import(store, shipped, &trials, &kernels);
}

static int look_up(struct ft_store *store) {
  const struct ft_trial trial = the_trial();
  const struct ft_query query = {
      .request = &trial.request, .device = CLASS_H200, .templates = &trial.templates};
  struct ft_choice choice;
  struct ft_kernel back;
  assert_ok(ft_store_choose(store, &query, &choice));
  const int status = ft_store_kernel_get(store, &kernel.key, &back);
  if (status == FT_OK) ft_kernel_free(&back);
  return choice.hit == FT_HIT_EXACT ? status : FT_E_NOT_FOUND;
}

static int export_it(struct ft_store *store) {
  struct ft_export export = {.may_be_empty = false};
  char file[140];
  snprintf(file, sizeof file, "%s.again", shipped);
  const int status = ft_store_export(store, "sm_90", NULL, file, &export);
  ck_assert_msg(status != FT_OK || (export.trials == 1 && export.kernels == 1),
                "allocation %ld: an export lacks rows", fail_at);
  return status;
}

static int verify(struct ft_store *store) {
  struct ft_store_verdict verdict;
  const int status = ft_store_verify(store, true, &verdict);
  ck_assert_msg(!verdict.mended[0].kept && !verdict.mended[1].kept && verdict.damaged == 0,
                "allocation %ld: a sound store was taken for a damaged one", fail_at);
  ft_store_verdict_free(&verdict);
  return status;
}

static const struct {
  int (*act)(struct ft_store *store);
  bool fills; /* begins with an empty store */
} acts[] = {{put, true}, {take_in, true}, {look_up, false}, {export_it, false}, {verify, false}};

enum { ACTS = sizeof acts / sizeof acts[0] };

static void set_up(void) {
  fixture_open(&fixture);
  take_over_memory();
  kernel = make_kernel(&fixture.dice, 20000);
  snprintf(shipped, sizeof shipped, "%s/sm_90.fatune", fixture.root);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(put(store));
  assert_ok(export_store(store, "sm_90", NULL, shipped, NULL, NULL));
  ft_store_close(store);
}

static void tear_down(void) {
  ft_kernel_free(&kernel);
  fixture_close(&fixture);
}

static void clear(void) {
  nftw(fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* What is stored is right, and what was there before still is. */
static void assert_sound(bool there) {
  struct ft_store_verdict verdict;
  fixture.warning_count = 0;
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_verify(store, false, &verdict));
  ck_assert_msg(verdict.damaged == 0, "allocation %ld: %lld damaged", armed,
                (long long)verdict.damaged);
  ck_assert_msg(!there || verdict.checked == 2, "allocation %ld: %lld rows", armed,
                (long long)verdict.checked);
  ft_store_verdict_free(&verdict);
  assert_ok(put(store)); /* the next run works */
  assert_ok(look_up(store));
  ft_store_close(store);
}

START_TEST(without_memory_nothing_wrong_is_done) {
  const int step = tests_are_slow() ? 1 : 31;
  long n = 1 + dice_below(&fixture.dice, step);
  int failures = 0;
  for (bool fired = true; fired; n += step) {
    if (acts[_i % ACTS].fills) clear();
    fixture.warning_count = 0;
    struct ft_store *const store = open_store(&fixture);
    arm(n, _i >= ACTS);
    const int status = acts[_i % ACTS].act(store);
    fired = count >= n;
    arm(0, false);
    ft_store_close(store);
    failures += status != FT_OK;
    assert_sound(!acts[_i % ACTS].fills || status == FT_OK);
  }
  ck_assert_int_gt(failures, 0);
}
END_TEST

Suite *make_store_memory_suite(void) {
  Suite *const suite = suite_create("store_memory");
  TCase *const tests = tcase_create("memory");
  tcase_set_timeout(tests, 300);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, without_memory_nothing_wrong_is_done, 0, 2 * ACTS);
  suite_add_tcase(suite, tests);
  return suite;
}
