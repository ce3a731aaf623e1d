/* test_tune.c: the search on a simulated machine.
 * in -> out: fates, drifts, stops -> rows, winner -> Check suite. */
#include "tests/simulated_machine.h"
#include "tests/suites.h"

/* ---- tests ---- */

static void expect_default_first(void *payload, const struct ft_tune_progress *progress) {
  int *calls = payload;
  *calls += 1;
  ck_assert_int_eq(progress->done, *calls);
  ck_assert_int_eq(progress->trial->is_default, *calls == 1);
  ck_assert(progress->best_us > 0 && progress->elapsed_seconds >= 0 && progress->eta_seconds >= 0);
}

START_TEST(the_default_comes_first) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  const struct ft_request request = the_request();
  struct ft_config config;
  int calls = 0;
  ck_assert_int_eq(ft_default_config(&request, &arch, &config), FT_OK);
  ck_assert_int_eq(ft_config_compare(&s->candidates.list[0].config, &config), 0);
  s->options.progress = expect_default_first;
  s->options.payload = &calls;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(calls, s->candidates.count);
  ck_assert_double_eq_tol(s->summary.default_us, 150, 1e-9);
  setting_free(s);
}
END_TEST

START_TEST(every_candidate_has_one_row_with_its_fate) {
  static const enum ft_outcome expected[] = {FT_OUTCOME_OK, FT_OUTCOME_WRONG, FT_OUTCOME_SPILLED,
                                             FT_OUTCOME_COMPILE, FT_OUTCOME_LAUNCH};
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  for (int n = 0; n < s->candidates.count; n++) s->machine->fates[n] = (enum fate)(n % 5);
  ck_assert_int_eq(search(s), FT_OK);
  int outcomes[5] = {0};
  for (int n = 0; n < s->candidates.count; n++) {
    const struct ft_trial *row = NULL;
    ck_assert_int_eq(rows_of(s, n, &row), 1);
    const bool ran = ft_outcome_ran(row->outcome);
    ck_assert_int_eq(ran ? FT_OUTCOME_OK : row->outcome, expected[n % 5]);
    ck_assert(ran ? row->sample_count > 0 && row->median_us > 0
                  : row->sample_count == 0 && row->reason[0] != '\0');
    ck_assert_ptr_null(strchr(row->reason, '\n'));
    outcomes[n % 5]++;
  }
  ck_assert_int_eq(s->summary.tried, s->candidates.count);
  ck_assert_int_eq(s->summary.ok, outcomes[0]);
  ck_assert_int_eq(s->summary.wrong, outcomes[1]);
  ck_assert_int_eq(s->summary.spilled, outcomes[2]);
  ck_assert_int_eq(s->summary.failed, outcomes[3] + outcomes[4]);
  ck_assert_int_eq(best_of(s), 5);
  setting_free(s);
}
END_TEST

START_TEST(wrong_kernels_never_win) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  s->machine->fates[1] = s->machine->fates[2] = WRONG;
  s->machine->us[1] = s->machine->us[2] = 1;
  ck_assert_int_eq(search(s), FT_OK); /* simulated_measure fails the test when they are timed */
  ck_assert_int_gt(best_of(s), 2);
  setting_free(s);
}
END_TEST

START_TEST(a_spilling_default_is_measured) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  s->machine->fates[0] = SPILLS;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_double_eq_tol(s->summary.default_us, 150, 1e-9);
  setting_free(s);
}
END_TEST

/* The winner of the search and that of the store's query must be the same config. */
static void expect_stores_choice(struct setting *s) {
  const struct ft_request request = the_request();
  const struct ft_query query = {.request = &request,
                                 .device = s->stamp.device,
                                 .target = "sm_80",
                                 .templates = &s->stamp.templates};
  struct ft_choice choice;
  ck_assert_int_eq(ft_store_choose(s->machine->store, &query, &choice), FT_OK);
  ck_assert_int_eq(choice.hit, FT_HIT_EXACT);
  ck_assert_int_eq(ft_config_compare(&choice.config, &s->summary.best), 0);
}

/* A run after others of the same store: it takes over so many rows, measures the rest and holds
 * finals of its own. */
static void expect_next_run(struct setting *s, int recalled, int best) {
  const int rounds = s->machine->rounds;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(s->summary.recalled, recalled);
  ck_assert_int_gt(s->machine->rounds, rounds);
  ck_assert_int_eq(best_of(s), best);
  expect_stores_choice(s);
}

static void give_store(struct setting *s) {
  const struct ft_store_options options = {.memory_only = 1};
  ck_assert_int_eq(ft_store_open(&s->machine->store, &options), FT_OK);
}

START_TEST(ties_go_to_the_default) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  give_store(s);
  s->machine->us[0] = 100.4; /* within 0.3 % of candidate 1, 100.2 us */
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(best_of(s), 0);
  expect_stores_choice(s);
  setting_free(s);
}
END_TEST

START_TEST(ties_go_to_less_memory_then_fewer_registers) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  give_store(s);
  for (int n = 1; n < s->candidates.count; n++) s->machine->us[n] = n <= 6 ? 100 + 0.01 * n : 110;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(best_of(s), 5); /* 1000 bytes; of 1 .. 6 the only one */
  expect_stores_choice(s);
  setting_free(s);
}
END_TEST

/* The GPU is 8 % slower in the finals than in the screening: no row of the screening may win by
 * that. */
START_TEST(a_warming_gpu_does_not_decide) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  give_store(s);
  s->machine->drift = 1.08;
  for (int n = 1; n < s->candidates.count; n++) s->machine->us[n] = n == 9 ? 100 : 106 + 0.5 * n;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(best_of(s), 9);
  expect_stores_choice(s);
  setting_free(s);
}
END_TEST

/* The first candidates are measured on a hot GPU, later ones on one that waited for the compiler,
 * and none of the later ones may seem faster by that, in the screening or in the store. */
START_TEST(a_cooling_gpu_does_not_decide) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  give_store(s);
  s->machine->hot = 13;
  s->machine->hot_factor = s->machine->drift = 1.15;
  for (int n = 1; n < s->candidates.count; n++)
    s->machine->us[n] = n == 9 ? 100 : 103 + 5 * (n % 11) / 10.0;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(best_of(s), 9);
  expect_stores_choice(s);
  for (int n = 0; n < s->machine->row_count; n++) {
    const struct ft_trial *row = &s->machine->rows[n];
    ck_assert_int_eq(row->sample_count, row->outcome == FT_OUTCOME_OK ? 24 : 5);
  }
  setting_free(s);
}
END_TEST

/* More are as good as the best than one round of finals holds, and the later rounds are of a cooler
 * GPU: all rows of finals are of one clock. */
START_TEST(rounds_of_finals_compare) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  int finals = 0;
  s->machine->drift = 1.15;
  s->machine->later = 1.02;
  for (int n = 1; n < s->candidates.count; n++) s->machine->us[n] = n <= 20 ? 100 + 0.01 * n : 110;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_ge(s->machine->rounds, 2);
  for (int n = 0; n < s->machine->row_count; n++) {
    const struct ft_trial *row = &s->machine->rows[n];
    if (row->outcome != FT_OUTCOME_OK) continue;
    const double us = s->machine->us[index_of(s->machine, &row->config)];
    ck_assert_double_eq_tol(row->median_us, 1.15 * us, 1e-6 * us);
    ck_assert_double_eq_tol(row->samples_us[0], 1.15 * 0.999 * us, 1e-6 * us);
    finals++;
  }
  ck_assert_int_eq(finals, 21); /* and the default */
  setting_free(s);
}
END_TEST

/* A second run has more candidates, all slower than the best of the first, and a cooler GPU. */
START_TEST(runs_compare) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  const int all = s->candidates.count;
  give_store(s);
  s->machine->drift = 1.15;
  for (int n = 1; n < all; n++) s->machine->us[n] = n == 5 ? 100 : n < 13 ? 103 : 102 + n % 7;
  s->candidates.count = 13;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(best_of(s), 5);
  s->candidates.count = all;
  expect_next_run(s, 13, 5);
  setting_free(s);
}
END_TEST

static volatile sig_atomic_t stop_flag;

static void stop_after_ten(void *payload, const struct ft_tune_progress *progress) {
  (void)payload;
  stop_flag = progress->done >= 10;
}

START_TEST(a_stop_keeps_every_row) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  stop_flag = 0;
  give_store(s);
  s->options.stop = &stop_flag;
  s->options.progress = stop_after_ten;
  ck_assert_int_eq(search(s), FT_E_INTERRUPTED);
  ck_assert_int_eq(s->summary.tried, 10);
  for (int n = 0; n < s->candidates.count; n++) ck_assert_int_eq(rows_of(s, n, NULL), n < 10);
  ck_assert_int_eq(best_of(s), 1); /* of 1 and 2, within 0.3 %, the one with less memory */
  ck_assert_int_eq(s->machine->rounds, 0);
  ck_assert_int_le(s->machine->compiles,
                   10 + 2 * 2 + 2); /* no more than the look-ahead for nothing */
  expect_stores_choice(s);

  /* The next run goes on, beside the best of the first, and holds the finals. */
  s->options.stop = NULL;
  s->options.progress = NULL;
  expect_next_run(s, 10, 1);
  setting_free(s);
}
END_TEST

/* A fault is recorded, ends the search, and the next search goes round it. */
START_TEST(a_lost_gpu_is_recorded) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  const struct ft_trial *row = NULL;
  s->machine->fates[4] = _i ? HANGS : FAULTS;
  ck_assert_int_eq(search(s), FT_E_DEVICE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "simulated fault"));
  ck_assert_int_eq(rows_of(s, 4, &row), 1);
  ck_assert_int_eq(row->outcome, _i ? FT_OUTCOME_TIMEOUT : FT_OUTCOME_LAUNCH);
  for (int n = 0; n < s->candidates.count; n++) ck_assert_int_eq(rows_of(s, n, NULL), n <= 4);

  s->machine->lost = false;
  s->machine->compiles = 0;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(s->summary.recalled, 5);
  ck_assert_int_eq(s->summary.tried, s->candidates.count);
  ck_assert_int_eq(rows_of(s, 4, NULL), 1);
  setting_free(s);
}
END_TEST

START_TEST(the_second_run_measures_nothing) {
  struct setting *s = setting_make(_i ? FT_EFFORT_EXHAUSTIVE : FT_EFFORT_NORMAL);
  ck_assert_int_eq(search(s), FT_OK);
  const int best = best_of(s), rows = s->machine->row_count, tried = s->summary.tried;
  const double best_us = s->summary.best_us;
  s->machine->compiles = s->machine->measures = s->machine->rounds = s->machine->loads = 0;
  s->machine->unloads = 0;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(s->machine->measures + s->machine->rounds + s->machine->loads, 0);
  ck_assert_int_eq(s->machine->row_count, rows);
  ck_assert_int_eq(s->summary.recalled, tried);
  ck_assert_int_eq(best_of(s), best);
  ck_assert_double_eq(s->summary.best_us, best_us);

  s->options.again = true;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(s->summary.recalled, 0);
  ck_assert_int_gt(s->machine->measures, 0);
  setting_free(s);
}
END_TEST

/* The second candidate is faster than the default, and so it is measured again. */
enum { TWICE = 1 };

START_TEST(an_equal_image_is_not_measured_twice) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  const struct ft_trial *row = NULL;
  s->machine->fates[3] = SAME_IMAGE; /* as candidate 2 */
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(rows_of(s, 3, &row), 1);
  ck_assert_int_eq(row->outcome, FT_OUTCOME_REJECTED);
  ck_assert_ptr_nonnull(strstr(row->reason, "same image as "));
  ck_assert_int_eq(s->machine->measures, s->candidates.count - 1 + TWICE);
  setting_free(s);
}
END_TEST

/* What ptxas says of a kernel outlasts the compile, and a remark that costs nothing is none. */
START_TEST(serialised_products_are_not_measured) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  const struct ft_trial *row = NULL;
  s->machine->fates[3] = SERIAL;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(rows_of(s, 3, &row), 1);
  ck_assert_int_eq(row->outcome, FT_OUTCOME_REJECTED);
  ck_assert_str_eq(row->reason, "ptxas: (C7512) Potential Performance Loss: wgmma.mma_async "
                                "instructions are serialized due to insufficient register "
                                "resources");
  ck_assert_int_eq(s->machine->measures, s->candidates.count - 1 + TWICE);
  setting_free(s);
}
END_TEST

START_TEST(effort_decides_how_many) {
  struct setting *quick = setting_make(FT_EFFORT_QUICK), *normal = setting_make(FT_EFFORT_NORMAL);
  ck_assert_int_eq(quick->candidates.count, 13);
  ck_assert_int_eq(search(normal), FT_OK);
  ck_assert_int_gt(normal->candidates.count, 70);
  ck_assert_int_eq(normal->summary.tried, 32); /* default, best, 30 that are no better */
  setting_free(quick);
  setting_free(normal);
}
END_TEST

START_TEST(a_missing_compiler_ends_the_search) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  s->machine->compile_status = FT_E_NO_NVRTC;
  ck_assert_int_eq(search(s), FT_E_NO_NVRTC);
  ck_assert_int_eq(s->machine->row_count, 0);
  setting_free(s);
}
END_TEST

START_TEST(nothing_that_runs_is_said) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  for (int n = 0; n < s->candidates.count; n++) s->machine->fates[n] = WRONG;
  ck_assert_int_eq(search(s), FT_E_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "13 wrong"));
  ck_assert_int_eq(s->machine->row_count, 13);
  setting_free(s);
}
END_TEST

static int by_config(const void *a, const void *b) {
  const struct ft_candidate *const x = a, *const y = b;
  return ft_config_compare(&x->config, &y->config);
}

/* All shards one after the other, sorted: every candidate once, the default in each. */
START_TEST(shards_are_a_partition) {
  enum { SHARDS = 3 };
  const struct ft_request request = the_request();
  const struct ft_tune_options whole = {.effort = FT_EFFORT_EXHAUSTIVE};
  struct ft_candidates all, part;
  ck_assert_int_eq(ft_candidates_make(&all, &request, &arch, NULL, &whole), FT_OK);
  const struct ft_candidate first = all.list[0];
  struct ft_candidate *const parts = calloc((size_t)all.count + SHARDS, sizeof *parts);
  int count = 0;
  for (int shard = 0; shard < SHARDS; shard++) {
    const struct ft_tune_options options = {
        .effort = FT_EFFORT_EXHAUSTIVE, .shard = shard, .shards = SHARDS};
    ck_assert_int_eq(ft_candidates_make(&part, &request, &arch, NULL, &options), FT_OK);
    ck_assert_int_eq(by_config(&part.list[0], &first), 0);
    const int skipped = shard > 0; /* the default is counted once */
    ck_assert_int_le(count + part.count - skipped, all.count);
    memcpy(&parts[count], &part.list[skipped], (size_t)(part.count - skipped) * sizeof *parts);
    count += part.count - skipped;
    ft_candidates_free(&part);
  }
  ck_assert_int_eq(count, all.count);
  qsort(parts, (size_t)count, sizeof *parts, by_config);
  qsort(all.list, (size_t)count, sizeof *parts, by_config);
  for (int n = 0; n < count; n++) ck_assert_int_eq(by_config(&parts[n], &all.list[n]), 0);
  free(parts);
  ft_candidates_free(&all);

  const struct ft_tune_options bad = {.shard = 3, .shards = SHARDS};
  ck_assert_int_eq(ft_candidates_make(&part, &request, &arch, NULL, &bad), FT_E_ARGUMENT);
}
END_TEST

/* The search is worth its time even if nothing of it can be kept. */
START_TEST(a_full_disk_does_not_end_the_search) {
  static const int refused[] = {1, 7, ROWS};
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  for (int n = 0; n < s->candidates.count; n++) s->machine->fates[n] = (enum fate)(n % 5);
  s->machine->rows_refused = refused[_i];
  ck_assert_int_eq(search(s), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "could not be stored: simulated full disk"));
  ck_assert_int_eq(s->summary.tried, s->candidates.count);
  ck_assert_int_eq(best_of(s), 5);
  const int lost = s->summary.unstored;
  ck_assert_int_ge(lost, refused[_i] < ROWS ? refused[_i] : s->candidates.count);
  if (refused[_i] < ROWS) ck_assert_int_eq(lost, refused[_i]);
  setting_free(s);
}
END_TEST

Suite *make_tune_suite(void) {
  Suite *suite = suite_create("tune");
  TCase *tcase = tcase_create("search");
  tcase_set_timeout(tcase, 30);
  tcase_add_test(tcase, the_default_comes_first);
  tcase_add_test(tcase, every_candidate_has_one_row_with_its_fate);
  tcase_add_test(tcase, wrong_kernels_never_win);
  tcase_add_test(tcase, a_spilling_default_is_measured);
  tcase_add_test(tcase, ties_go_to_the_default);
  tcase_add_test(tcase, ties_go_to_less_memory_then_fewer_registers);
  tcase_add_test(tcase, a_warming_gpu_does_not_decide);
  tcase_add_test(tcase, a_cooling_gpu_does_not_decide);
  tcase_add_test(tcase, rounds_of_finals_compare);
  tcase_add_test(tcase, runs_compare);
  tcase_add_test(tcase, a_stop_keeps_every_row);
  tcase_add_loop_test(tcase, a_lost_gpu_is_recorded, 0, 2);
  tcase_add_loop_test(tcase, the_second_run_measures_nothing, 0, 2);
  tcase_add_test(tcase, an_equal_image_is_not_measured_twice);
  tcase_add_test(tcase, serialised_products_are_not_measured);
  tcase_add_test(tcase, effort_decides_how_many);
  tcase_add_test(tcase, a_missing_compiler_ends_the_search);
  tcase_add_loop_test(tcase, a_full_disk_does_not_end_the_search, 0, 3);
  tcase_add_test(tcase, nothing_that_runs_is_said);
  tcase_add_test(tcase, shards_are_a_partition);
  suite_add_tcase(suite, tcase);
  return suite;
}
