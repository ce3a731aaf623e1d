/* test_store_power.c: the power goes at every operation: after it the stores are sound, and no
 * trial is lost but the one that was being written. in -> out: writes until the power goes -> what
 * a disk may have kept of them -> Check suite. */
#include "tests/suites.h"

#include "tests/power_loss.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

enum { ROWS = 12 };

static struct fixture fixture;
static struct ft_kernel kernels[ROWS];

static void set_up(void) {
  fixture_open(&fixture);
  for (int i = 0; i < ROWS; i++) kernels[i] = make_kernel(&fixture.dice, 9000);
}

static void tear_down(void) {
  for (int i = 0; i < ROWS; i++) ft_kernel_free(&kernels[i]);
  fixture_close(&fixture);
}

static void clear(void) {
  nftw(fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Kernels and trials in turn; the number of trials that were told to be stored. Closes the store
 * in between, as one process after another does. */
static int write_rows(void) {
  struct ft_store *store = open_store(&fixture);
  int stored = 0;
  for (int i = 0; i < ROWS; i++) {
    const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 10 + i);
    ft_store_kernel_put(store, &kernels[i]);
    stored += ft_store_trial_put(store, &trial) == FT_OK;
    if (i != ROWS / 2) continue;
    ft_store_close(store);
    store = open_store(&fixture);
  }
  ft_store_close(store);
  return stored;
}

static int64_t count_rows(const char *name, const char *sql) {
  char path[160];
  snprintf(path, sizeof path, "%s/%s", fixture.folder, name);
  return access(path, F_OK) == 0 ? number_of(path, sql) : 0;
}

static void assert_sound_after(long at, int stored) {
  const unsigned long long seed = fixture.dice.seed;
  struct ft_store_verdict verdict;
  fixture.warning_count = 0;
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_verify(store, false, &verdict));
  ck_assert_msg(verdict.damaged == 0, "seed %llu, operation %ld: %lld damaged", seed, at,
                (long long)verdict.damaged);
  ft_store_verdict_free(&verdict);
  const int64_t trials = count_rows("tuning.db", "SELECT count(*) FROM trials");
  ck_assert_msg(trials >= stored && trials <= stored + 1,
                "seed %llu, operation %ld: %lld trials, %d were stored", seed, at,
                (long long)trials, stored);
  assert_ok(ft_store_kernel_put(store, &kernels[0]));
  assert_has(&fixture, store, &kernels[0]);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}

START_TEST(the_power_goes_at_every_operation) {
  const int step = tests_are_slow() ? 1 : 29;
  power_loss_begin();
  power_loss_reset();
  ck_assert_int_eq(write_rows(), ROWS);
  const long all = power_loss_count();
  for (long at = 1 + dice_below(&fixture.dice, step); at <= all; at += step) {
    clear();
    power_loss_reset();
    power_loss_at(at);
    fixture.warning_count = 0;
    const int stored = write_rows();
    power_loss_happen(dice_bits(&fixture.dice));
    power_loss_reset();
    assert_sound_after(at, stored);
  }
  power_loss_reset();
}
END_TEST

Suite *make_store_power_suite(void) {
  Suite *const suite = suite_create("store_power");
  TCase *const tests = tcase_create("power");
  tcase_set_timeout(tests, 1200);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, the_power_goes_at_every_operation);
  suite_add_tcase(suite, tests);
  return suite;
}
