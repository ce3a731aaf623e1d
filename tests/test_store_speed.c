/* test_store_speed.c: look-ups in a store of many trials.
 * in -> out: trials of many buckets -> the time of an exact hit, of a near one, of a miss -> Check
 * suite. FATUNE_TEST_SLOW=1: a million trials, and the times that are promised. */
#include "tests/suites.h"

#include "cache/rows.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"

enum { CLASSES = 10, OF_BUCKET = 100, LOOK_UPS = 50 };

static const double PROMISED_MS = 5;

static struct fixture fixture;

static void set_up(void) {
  fixture_open(&fixture);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

/* Ten classes by head dim, buckets by length, batch and heads. */
static void name_request(int class, int bucket, char text[96]) {
  snprintf(text, 96, "forward bf16 d%d hq%d b%d nq%d", 16 * (class + 1), 1 << bucket % 13,
           1 << bucket / 13 % 10, 128 << bucket / 130 % 8);
}

static int fill(int buckets) {
  char path[128];
  struct ft_database database = {0};
  snprintf(path, sizeof path, "%s/tuning.db", fixture.folder);
  ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
  write_bytes(path, "", 0);
  ck_assert_int_eq(chmod(path, 0600), 0);
  assert_ok(ft_database_open(&database, path, FT_DATABASE_USER));
  assert_ok(ft_database_begin(&database, 0));
  int rows = 0;
  for (int class = 0; class < CLASSES; class ++) {
    for (int bucket = 0; bucket < buckets; bucket++) {
      char text[96];
      name_request(class, bucket, text);
      struct ft_trial trial = make_trial(text, CLASS_H200, 0, 100);
      for (int i = 0; i < OF_BUCKET; i++) {
        bool inserted = false;
        trial.config = config_number(i);
        trial.median_us = 100 + i;
        trial.outcome = i % 10 < 6   ? FT_OUTCOME_SCREENED
                        : i % 10 < 9 ? FT_OUTCOME_SPILLED
                                     : FT_OUTCOME_OK;
        trial.at = 1700000000 + rows;
        assert_ok(ft_row_put_trial(&database, &trial, &inserted));
        rows += inserted;
      }
    }
  }
  assert_ok(ft_database_commit(&database));
  ft_database_close(&database);
  return rows;
}

/* Of the processor, so that what else runs on the machine does not count. The files lie in memory.
 */
static double processor_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* The median of several, in milliseconds. */
static double time_of(struct ft_store *store, const char *text, const char *device,
                      enum ft_hit expected) {
  double times[LOOK_UPS];
  const struct ft_request request = request_of(text);
  const struct ft_digest templates = digest_of_text("templates 1");
  const struct ft_query query = {
      .request = &request, .device = device, .target = "sm_90", .templates = &templates};
  for (int i = 0; i < LOOK_UPS; i++) {
    struct ft_choice choice;
    const double begin = processor_ms();
    assert_ok(ft_store_choose(store, &query, &choice));
    times[i] = processor_ms() - begin;
    ck_assert_int_eq(choice.hit, expected);
    for (int k = i; k > 0 && times[k] < times[k - 1]; k--) {
      const double other = times[k];
      times[k] = times[k - 1];
      times[k - 1] = other;
    }
  }
  return times[LOOK_UPS / 2];
}

START_TEST(look_ups_do_not_grow_with_the_store) {
  const int rows = fill(tests_are_slow() ? 1000 : 20);
  struct ft_store *const store = open_store(&fixture);
  char text[96];
  name_request(3, 7, text);
  const double exact = time_of(store, text, CLASS_H200, FT_HIT_EXACT);
  const double near = time_of(store, "forward bf16 d64 hq64 nq128 nk256", CLASS_H200, FT_HIT_NEAR);
  const double elsewhere = time_of(store, text, CLASS_H100, FT_HIT_NEAR);
  const double miss = time_of(store, "forward fp16 d64 nq4096", CLASS_H200, FT_HIT_DEFAULT);
  printf("store_speed: %d trials: exact %.2f ms, near %.2f, another device %.2f, miss %.2f\n", rows,
         exact, near, elsewhere, miss);
  const double limit = tests_are_slow() ? PROMISED_MS : 10 * PROMISED_MS;
  ck_assert_msg(exact <= limit && near <= limit && elsewhere <= limit && miss <= limit,
                "%d trials: exact %.2f ms, near %.2f, another device %.2f, miss %.2f", rows, exact,
                near, elsewhere, miss);
  ft_store_close(store);
}
END_TEST

Suite *make_store_speed_suite(void) {
  Suite *const suite = suite_create("store_speed");
  TCase *const tests = tcase_create("speed");
  tcase_set_timeout(tests, 1200);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, look_ups_do_not_grow_with_the_store);
  suite_add_tcase(suite, tests);
  return suite;
}
