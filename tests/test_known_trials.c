/* test_known_trials.c: what a search knows from the rows of earlier ones.
 * in -> out: rows of one config, of one set of conditions and others -> one row -> Check suite. */
#include "tuner/search/known_trials.h"

#include "tests/simulated_machine.h"
#include "tests/suites.h"

static void give_store(struct setting *s) {
  const struct ft_store_options options = {.memory_only = 1};
  ck_assert_int_eq(ft_store_open(&s->machine->store, &options), FT_OK);
}

static void put_row_of(struct setting *s, int candidate, double us, const char *driver,
                       enum ft_outcome outcome) {
  struct ft_trial row = s->stamp;
  row.config = s->candidates.list[candidate].config;
  strcpy(row.driver, driver);
  strcpy(row.nvrtc, "13.0.0");
  row.outcome = outcome;
  if (ft_outcome_ran(outcome)) row.sample_count = 3;
  for (int n = 0; n < row.sample_count; n++) row.samples_us[n] = us + n;
  if (ft_outcome_ran(outcome)) row.median_us = us + 1;
  row.at = 1000 + s->machine->row_count++;
  ck_assert_int_eq(ft_store_trial_put(s->machine->store, &row), FT_OK);
}

static void put_row(struct setting *s, int candidate, double us, const char *driver) {
  put_row_of(s, candidate, us, driver, s->stamp.outcome);
}

START_TEST(known_rows_are_of_the_same_conditions_and_pooled) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  struct ft_known known;
  struct ft_trial row;
  give_store(s);
  strcpy(s->stamp.driver, "580.1");
  strcpy(s->stamp.nvrtc, "13.0.0");
  put_row(s, 1, 10, "580.1");
  put_row(s, 1, 20, "580.1");
  put_row(s, 2, 10, "570.2"); /* another driver */
  ft_known_collect(&known, s->machine->store, &s->stamp);
  ck_assert(!ft_known_find(&known, &s->candidates.list[2].config, &row));
  ck_assert(!ft_known_find(&known, &s->candidates.list[3].config, &row));
  ck_assert(ft_known_find(&known, &s->candidates.list[1].config, &row));
  ck_assert_int_eq(row.sample_count, 6); /* 10 11 12 20 21 22 */
  ck_assert_double_eq(row.median_us, 16);
  ft_known_free(&known);

  s->stamp.templates.bytes[0] ^= 1;
  ft_known_collect(&known, s->machine->store, &s->stamp);
  ck_assert(!ft_known_find(&known, &s->candidates.list[1].config, &row));
  ft_known_free(&known);
  setting_free(s);
}
END_TEST

/* Whatever came first: finals go before a screening, and that before a failure. */
START_TEST(known_rows_of_one_config_are_one) {
  static const struct {
    enum ft_outcome rows[3], known;
    int samples;
  } cases[] = {
      {{FT_OUTCOME_LAUNCH, FT_OUTCOME_OK, FT_OUTCOME_WRONG}, FT_OUTCOME_OK, 3},
      {{FT_OUTCOME_OK, FT_OUTCOME_LAUNCH, FT_OUTCOME_SCREENED}, FT_OUTCOME_OK, 3},
      {{FT_OUTCOME_SCREENED, FT_OUTCOME_OK, FT_OUTCOME_OK}, FT_OUTCOME_OK, 6},
      {{FT_OUTCOME_LAUNCH, FT_OUTCOME_SCREENED, FT_OUTCOME_SCREENED}, FT_OUTCOME_SCREENED, 6},
      {{FT_OUTCOME_WRONG, FT_OUTCOME_WRONG, FT_OUTCOME_WRONG}, FT_OUTCOME_WRONG, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct setting *const s = setting_make(FT_EFFORT_QUICK);
    struct ft_known known;
    struct ft_trial row;
    give_store(s);
    strcpy(s->stamp.driver, "580.1");
    for (int n = 0; n < 3; n++) put_row_of(s, 1, 10 * (n + 1), "580.1", cases[i].rows[n]);
    ft_known_collect(&known, s->machine->store, &s->stamp);
    ck_assert_int_eq(known.count, 3);
    ck_assert(ft_known_find(&known, &s->candidates.list[1].config, &row));
    ck_assert_int_eq(row.outcome, cases[i].known);
    ck_assert_int_eq(row.sample_count, cases[i].samples);
    ft_known_free(&known);
    setting_free(s);
  }
}
END_TEST

/* Samples have a room that more rows do not overflow. */
START_TEST(pooled_samples_end_where_their_room_does) {
  struct setting *const s = setting_make(FT_EFFORT_QUICK);
  struct ft_known known;
  struct ft_trial row;
  give_store(s);
  strcpy(s->stamp.driver, "580.1");
  for (int n = 0; n < FT_TRIAL_SAMPLES / 3 + 2; n++)
    put_row_of(s, 1, 10 + n, "580.1", FT_OUTCOME_OK);
  ft_known_collect(&known, s->machine->store, &s->stamp);
  ck_assert(ft_known_find(&known, &s->candidates.list[1].config, &row));
  ck_assert_int_eq(row.sample_count, FT_TRIAL_SAMPLES);
  ft_known_free(&known);
  setting_free(s);
}
END_TEST

Suite *make_known_trials_suite(void) {
  Suite *const suite = suite_create("known_trials");
  TCase *const tests = tcase_create("known_trials");
  tcase_add_test(tests, known_rows_are_of_the_same_conditions_and_pooled);
  tcase_add_test(tests, known_rows_of_one_config_are_one);
  tcase_add_test(tests, pooled_samples_end_where_their_room_does);
  suite_add_tcase(suite, tests);
  return suite;
}
