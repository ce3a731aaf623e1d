/* test_store_choose.c: which trial wins, how it was hit, and that equal data gives equal choices.
 * in -> out: trials of chosen and of random times -> Check suite. */
#include "tests/suites.h"

#include "cache/winner.h"
#include "tests/store_fixture.h"

#define PROBLEM     "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"
#define NEARBY      "forward bf16 d128 hq16 hkv16 b4 nq4096 nk4096 causal" /* 1 octave away */
#define AS_NEAR     "forward bf16 d128 hq32 hkv16 b2 nq4096 nk4096 causal" /* 1, and comes later */
#define OTHER_CLASS "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096"

static struct fixture fixture;

static void set_up(void) {
  fixture_open(&fixture);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static struct ft_choice choose_as(struct ft_store *store, const char *request, const char *device,
                                  const char *policy, const char *templates) {
  const struct ft_digest digest = digest_of_text(templates);
  return choose_for(store, request,
                    (struct ft_query){.device = device, .policy = policy, .templates = &digest});
}

static struct ft_choice choose(struct ft_store *store, const char *request) {
  return choose_as(store, request, CLASS_H200, "events-warm/2", "templates 1");
}

/* -- ties ----------------------------------------------------------------------------------- */

START_TEST(the_fastest_wins_beyond_noise) {
  struct ft_store *const store = open_store(&fixture);
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 1, 100));
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 2, 90));
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 3, 95));
  const struct ft_choice choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_EXACT, 2);
  ck_assert_double_eq(choice.median_us, 90);
  ck_assert_ptr_nonnull(strstr(choice.note, CLASS_H200));
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* Two candidates; the first is the slower one, and wins only while it is within the noise. */
static const struct {
  double slower, spread;
  int is_default, smem, registers; /* of the slower one; the faster has 0, 65536, 168 */
  bool wins;
} ties[] = {
    {100.2, 0.0, 1, 65536, 168, true},  /* within 0.3 %: default first */
    {100.4, 0.0, 1, 65536, 168, false}, /* beyond */
    {100.7, 0.4, 1, 65536, 168, true},  /* within twice the spread */
    {100.9, 0.4, 1, 65536, 168, false}, /* beyond */
    {100.9, 5.0, 1, 65536, 168, true},  /* within 1 %, */
    {101.1, 5.0, 1, 65536, 168, false}, /* which is all that a spread can excuse */
    {100.2, 0.1, 0, 65535, 255, true},  /* then less shared memory */
    {100.2, 0.1, 0, 65537, 10, false},  /* which goes before registers */
    {100.2, 0.1, 0, 65536, 167, true},  /* then fewer registers */
    {100.2, 0.1, 0, 65536, 169, false},
};

START_TEST(ties_have_a_fixed_order) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_trial fast = make_trial(PROBLEM, CLASS_H200, 1, 100);
  struct ft_trial slow = make_trial(PROBLEM, CLASS_H200, 2, ties[_i].slower);
  fast.spread_us = ties[_i].spread;
  slow.spread_us = 50; /* the best one's spread counts, not this */
  slow.is_default = ties[_i].is_default;
  slow.smem_bytes = ties[_i].smem;
  slow.registers = ties[_i].registers;
  put_trial(store, slow);
  put_trial(store, fast);
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, ties[_i].wins ? 2 : 1);
  ft_store_close(store);
}
END_TEST

START_TEST(full_ties_go_by_config) {
  struct ft_store *const store = open_store(&fixture);
  int least = 5;
  for (int i = 6; i < 12; i++) {
    const struct ft_config a = config_number(i), b = config_number(least);
    if (ft_config_compare(&a, &b) < 0) least = i;
  }
  for (int i = 11; i >= 5; i--) put_trial(store, make_trial(PROBLEM, CLASS_H200, i, 100));
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, least);
  ft_store_close(store);
}
END_TEST

/* One lucky measurement does not win over many honest ones of the same config. */
START_TEST(samples_of_one_config_are_pooled) {
  struct ft_store *const store = open_store(&fixture);
  static const double sets[3][3] = {{80, 80, 80}, {120, 121, 122}, {119, 120, 123}};
  for (int i = 0; i < 3; i++) {
    struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, sets[i][1]);
    memcpy(trial.samples_us, sets[i], sizeof sets[i]);
    trial.sample_count = 3;
    trial.at += i;
    put_trial(store, trial);
  }
  struct ft_trial steady = make_trial(PROBLEM, CLASS_H200, 2, 50);
  for (int i = 0; i < 5; i++) steady.samples_us[i] = 70 + i;
  steady.sample_count = 5; /* 72, whatever median_us says */
  put_trial(store, steady);
  struct ft_choice choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_EXACT, 2);
  ck_assert_double_eq(choice.median_us, 72);
  for (int i = 0; i < 5; i++) steady.samples_us[i] = 300;
  for (int i = 0; i < 3; i++) {
    steady.at += 1;
    put_trial(store, steady);
  }
  choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_EXACT, 1);
  ck_assert_double_eq(choice.median_us, 120); /* 80 80 80 119 (120) 120 121 122 123 */
  ft_store_close(store);
}
END_TEST

/* Its time is of another clock. Where no search came to its finals it serves, among its like. */
START_TEST(a_screened_one_wins_beside_no_other) {
  struct ft_store *const store = open_store(&fixture);
  for (int i = 1; i < 4; i++)
    put_trial(store, make_screened(PROBLEM, CLASS_H200, i, i == 2 ? 50 : 60));
  struct ft_trial predicted = make_trial(PROBLEM, CLASS_H200, 4, 10);
  predicted.outcome = FT_OUTCOME_PREDICTED;
  put_trial(store, predicted);
  put_trial(store, make_trial(PROBLEM, CLASS_H100, 5, 10));
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 2);
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.winners, 2); /* one for each GPU */
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 6, 100));
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 6);
  put_trial(store,
            make_trial(PROBLEM, CLASS_H200, 2, 90)); /* had finals, too: no sample is pooled */
  const struct ft_choice choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_EXACT, 2);
  ck_assert_double_eq(choice.median_us, 90);
  ft_store_close(store);
}
END_TEST

START_TEST(only_measured_and_right_ones_win) {
  struct ft_store *const store = open_store(&fixture);
  for (int i = FT_OUTCOME_PREDICTED; i <= FT_OUTCOME_TIMEOUT; i++) {
    struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 1);
    trial.outcome = (enum ft_outcome)i;
    if (i != FT_OUTCOME_PREDICTED) put_trial(store, trial);
  }
  ck_assert_int_eq(choose(store, PROBLEM).hit, FT_HIT_DEFAULT);
  struct ft_trial predicted = make_trial(PROBLEM, CLASS_H200, 20, 1);
  predicted.outcome = FT_OUTCOME_PREDICTED;
  snprintf(predicted.policy, sizeof predicted.policy, "model/1");
  put_trial(store, predicted);
  assert_choice(choose(store, PROBLEM), FT_HIT_MODEL, 20);
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 21, 1000));
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 21);
  ft_store_close(store);
}
END_TEST

/* The order in which rows came, and into which of two stores, must not matter. */
START_TEST(equal_data_gives_equal_choices) {
  enum { COUNT = 40, ROUNDS = 6 };
  struct ft_trial trials[COUNT];
  struct ft_config first = config_number(0);
  for (int i = 0; i < COUNT; i++) {
    trials[i] = make_trial(PROBLEM, CLASS_H200, dice_below(&fixture.dice, 15),
                           100 + dice_share(&fixture.dice) * 3);
    trials[i].at += dice_below(&fixture.dice, 3);
    trials[i].sample_count = dice_below(&fixture.dice, 8);
    for (int k = 0; k < trials[i].sample_count; k++)
      trials[i].samples_us[k] = 100 + dice_share(&fixture.dice) * 3;
    trials[i].smem_bytes = 1024 * dice_below(&fixture.dice, 2);
  }
  for (int round = 0; round < ROUNDS; round++) {
    struct ft_store *const store =
        open_store_with(&fixture, (struct ft_store_options){.memory_only = 1});
    for (int i = COUNT - 1; i > 0; i--) {
      const int other = dice_below(&fixture.dice, i + 1);
      const struct ft_trial swapped = trials[i];
      trials[i] = trials[other];
      trials[other] = swapped;
    }
    for (int i = 0; i < COUNT; i++) put_trial(store, trials[i]);
    const struct ft_choice choice = choose(store, PROBLEM);
    ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
    if (round == 0) first = choice.config;
    ck_assert_msg(ft_config_compare(&first, &choice.config) == 0, "seed %llu",
                  (unsigned long long)fixture.dice.seed);
    ft_store_close(store);
  }
}
END_TEST

/* -- hits ----------------------------------------------------------------------------------- */

START_TEST(hits_get_better_step_by_step) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_choice choice = choose(store, PROBLEM);
  ck_assert_int_eq(choice.hit, FT_HIT_DEFAULT);
  ck_assert_double_eq(choice.median_us, 0);
  put_trial(store, make_trial(OTHER_CLASS, CLASS_H200, 1, 10));
  put_trial(store, make_trial(PROBLEM, CLASS_A100, 2, 10)); /* another target: never */
  ck_assert_int_eq(choose(store, PROBLEM).hit, FT_HIT_DEFAULT);

  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 3, 10);
  trial.outcome = FT_OUTCOME_PREDICTED;
  put_trial(store, trial);
  assert_choice(choose(store, PROBLEM), FT_HIT_MODEL, 3);
  put_trial(store, make_trial(NEARBY, CLASS_H100, 4, 10));
  choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_NEAR, 4);
  ck_assert_ptr_nonnull(strstr(choice.note, "another device"));
  put_trial(store, make_trial(PROBLEM, CLASS_H100, 5, 10));
  assert_choice(choose(store, PROBLEM), FT_HIT_NEAR, 5);
  put_trial(store, make_trial(AS_NEAR, CLASS_H200, 6, 10));
  choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_NEAR, 6);
  ck_assert_ptr_nonnull(strstr(choice.note, "nearest bucket, 1 octave away"));
  ck_assert_double_eq(choice.octaves, 1);
  put_trial(store, make_trial(NEARBY, CLASS_H200, 7, 10));
  assert_choice(choose(store, PROBLEM), FT_HIT_NEAR, 7);

  trial = make_trial(PROBLEM, CLASS_H200, 8, 10);
  trial.templates = digest_of_text("templates 0");
  put_trial(store, trial);
  choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_NEAR, 8);
  ck_assert_ptr_nonnull(strstr(choice.note, "other templates"));
  trial = make_trial(PROBLEM, CLASS_H200, 9, 1000);
  trial.kernel = digest_of_text("its kernel");
  put_trial(store, trial);
  choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_EXACT, 9);
  ck_assert(ft_digest_equal(&choice.kernel, &trial.kernel));
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(every_length_of_a_bucket_is_exact) {
  struct ft_store *const store = open_store(&fixture);
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 3, 10));
  assert_choice(choose(store, "forward bf16 d128 hq16 hkv16 b2 nq4100 nk4000 causal"), FT_HIT_EXACT,
                3);
  ft_store_close(store);
}
END_TEST

START_TEST(policies_do_not_mix) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 5);
  snprintf(trial.policy, sizeof trial.policy, "events-cold/1");
  put_trial(store, trial);
  ck_assert_int_eq(choose(store, PROBLEM).hit, FT_HIT_DEFAULT);
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 2, 10));
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 2);
  assert_choice(choose_as(store, PROBLEM, CLASS_H200, NULL, "templates 1"), FT_HIT_EXACT, 1);
  ft_store_close(store);
}
END_TEST

START_TEST(the_device_most_alike_is_taken) {
  struct ft_store *const store = open_store(&fixture);
  put_trial(store, make_trial(PROBLEM, "tiny/sm_90/16", 1, 10));
  put_trial(store, make_trial(PROBLEM, CLASS_H100, 2, 10));
  put_trial(store, make_trial(PROBLEM, "huge/sm_90/512", 3, 10));
  put_trial(store, make_trial(PROBLEM, "odd/sm_90/many", 4, 10));
  assert_choice(choose(store, PROBLEM), FT_HIT_NEAR, 2);
  ft_store_close(store);
}
END_TEST

/* A later version may write knobs or outcomes that this one does not know: passed over in silence.
 */
static void insert_raw(const char *path, const char *text) {
  struct ft_hasher hasher;
  sqlite3 *handle = NULL;
  sqlite3_stmt *statement = NULL;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "trial", text, strlen(text));
  const struct ft_digest identity = ft_hasher_final(&hasher);
  ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
  ck_assert_int_eq(
      sqlite3_prepare_v2(handle,
                         "INSERT INTO trials (identity, bucket, class, device, target, "
                         "policy, outcome, at, templates, text) SELECT ?1, bucket, "
                         "class, device, target, policy, outcome, at, templates, ?2 "
                         "FROM trials LIMIT 1",
                         -1, &statement, NULL),
      SQLITE_OK);
  sqlite3_bind_blob(statement, 1, identity.bytes, FT_DIGEST_BYTES, SQLITE_STATIC);
  sqlite3_bind_text(statement, 2, text, -1, SQLITE_STATIC);
  ck_assert_int_eq(sqlite3_step(statement), SQLITE_DONE);
  sqlite3_finalize(statement);
  sqlite3_close(handle);
}

START_TEST(rows_of_another_version_are_passed_over) {
  struct ft_store *const store = open_store(&fixture);
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 2, 10);
  struct ft_trial better = make_trial(PROBLEM, CLASS_H200, 1, 5);
  struct ft_text text = FT_TEXT_INIT;
  put_trial(store, trial);
  ft_trial_print(&better, &text);
  char *const config = strstr(text.data, "mma_forward ");
  ck_assert_ptr_nonnull(config);
  config[0] = 'n'; /* family "nma_forward" */
  insert_raw(ft_store_tuning_path(store), text.data);
  ck_assert_int_eq(number_of(ft_store_tuning_path(store), "SELECT count(*) FROM trials"), 2);
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 2);
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 2);
  assert_warnings(&fixture, 1);
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], ": 1 trial of another version is skipped ("));
  ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "family 'nma_forward' is unknown"));
  ck_assert_int_eq(ft_store_faults(store), 0);

  /* A row that differs from its digest is damaged, which is a fault. */
  run_sql(ft_store_tuning_path(store),
          "UPDATE trials SET text = replace(text, 'nma_forward ', 'mma_forward ') WHERE id = 2");
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 2);
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 2);
  assert_warnings(&fixture, 2);
  ck_assert_int_eq(ft_store_faults(store), 1);
  ft_text_free(&text);
  ft_store_close(store);
}
END_TEST

/* -- layers and lists ----------------------------------------------------------------------- */

static void make_layer(const char *path, const struct ft_trial *trial) {
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.memory_only = 1});
  put_trial(store, *trial);
  assert_ok(export_store(store, "sm_90", NULL, path, NULL, NULL));
  ft_store_close(store);
}

START_TEST(user_goes_before_layers_within_a_hit_class) {
  char first[128], second[128], paths[300], file[160];
  snprintf(first, sizeof first, "%s/first", fixture.root);
  snprintf(second, sizeof second, "%s/second", fixture.root);
  snprintf(paths, sizeof paths, "%s::%s:/no/such/folder", first, second);
  ck_assert_int_eq(mkdir(first, 0700) | mkdir(second, 0700), 0);
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 10);
  snprintf(file, sizeof file, "%s/sm_90.fatune", first);
  make_layer(file, &trial);
  trial = make_trial(PROBLEM, CLASS_H200, 2, 5); /* faster, but in a later layer */
  snprintf(file, sizeof file, "%s/sm_90.fatune", second);
  make_layer(file, &trial);

  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.system_path = paths});
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(store, &stats));
  ck_assert_int_eq(stats.layers, 2);
  struct ft_choice choice = choose(store, PROBLEM);
  assert_choice(choice, FT_HIT_EXACT, 1);
  ck_assert_ptr_nonnull(strstr(choice.note, first));
  put_trial(store, make_trial(NEARBY, CLASS_H200, 3, 1));
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 1); /* exact in a layer beats near here */
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 4, 100));
  assert_choice(choose(store, PROBLEM), FT_HIT_EXACT, 4);
  /* Near hits: the nearest, wherever it lies. */
  put_trial(store, make_trial(NEARBY, CLASS_H200, 5, 100));
  assert_choice(choose(store, "forward bf16 d128 hq16 hkv16 b1 nq4096 nk4096 causal"), FT_HIT_NEAR,
                4);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

struct seen {
  int count, stop_after;
  double medians[16];
};

static bool see(void *payload, const struct ft_trial *trial) {
  struct seen *const seen = payload;
  ck_assert_int_lt(seen->count, 16);
  seen->medians[seen->count++] = trial->median_us;
  return seen->count != seen->stop_after;
}

START_TEST(lists_are_in_winners_order) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_trial wrong = make_trial(PROBLEM, CLASS_H200, 5, 1);
  wrong.outcome = FT_OUTCOME_WRONG;
  put_trial(store, wrong);
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 1, 30));
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 2, 10));
  put_trial(store, make_trial(PROBLEM, CLASS_H200, 3, 20));
  put_trial(store, make_trial(PROBLEM, CLASS_H100, 3, 40));
  put_trial(store, make_trial(NEARBY, CLASS_H200, 3, 50));
  const struct ft_request bucket = request_of(PROBLEM);
  struct seen seen = {.stop_after = -1};
  assert_ok(ft_store_trials(store, &bucket, CLASS_H200, see, &seen));
  ck_assert_int_eq(seen.count, 4);
  ck_assert_double_eq(seen.medians[0], 10);
  ck_assert_double_eq(seen.medians[1], 20);
  ck_assert_double_eq(seen.medians[2], 30);
  ck_assert_double_eq(seen.medians[3], 1);
  seen = (struct seen){.stop_after = -1};
  assert_ok(ft_store_trials(store, &bucket, NULL, see, &seen));
  ck_assert_int_eq(seen.count, 5);
  seen = (struct seen){.stop_after = -1};
  assert_ok(ft_store_trials(store, NULL, NULL, see, &seen));
  ck_assert_int_eq(seen.count, 6);
  seen = (struct seen){.stop_after = 2};
  assert_ok(ft_store_trials(store, NULL, NULL, see, &seen));
  ck_assert_int_eq(seen.count, 2);
  ft_store_close(store);
}
END_TEST

START_TEST(the_same_trial_counts_once) {
  char file[128];
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 30);
  snprintf(file, sizeof file, "%s/sm_90.fatune", fixture.root);
  make_layer(file, &trial);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.library_folder = fixture.root});
  struct seen seen = {.stop_after = -1};
  for (int i = 0; i < 3; i++) put_trial(store, trial);
  assert_ok(ft_store_trials(store, NULL, NULL, see, &seen));
  ck_assert_int_eq(seen.count, 1);
  struct ft_trial bad = trial;
  bad.median_us = -1; /* could never be read back */
  assert_status(ft_store_trial_put(store, &bad), FT_E_ARGUMENT);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

Suite *make_store_choose_suite(void) {
  Suite *const suite = suite_create("store_choose");
  TCase *const tests = tcase_create("choose");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, the_fastest_wins_beyond_noise);
  tcase_add_loop_test(tests, ties_have_a_fixed_order, 0, (int)(sizeof ties / sizeof ties[0]));
  tcase_add_test(tests, full_ties_go_by_config);
  tcase_add_test(tests, samples_of_one_config_are_pooled);
  tcase_add_test(tests, a_screened_one_wins_beside_no_other);
  tcase_add_test(tests, only_measured_and_right_ones_win);
  tcase_add_test(tests, equal_data_gives_equal_choices);
  tcase_add_test(tests, hits_get_better_step_by_step);
  tcase_add_test(tests, every_length_of_a_bucket_is_exact);
  tcase_add_test(tests, policies_do_not_mix);
  tcase_add_test(tests, the_device_most_alike_is_taken);
  tcase_add_test(tests, rows_of_another_version_are_passed_over);
  tcase_add_test(tests, user_goes_before_layers_within_a_hit_class);
  tcase_add_test(tests, lists_are_in_winners_order);
  tcase_add_test(tests, the_same_trial_counts_once);
  suite_add_tcase(suite, tests);
  return suite;
}
