/* test_tune_clock.c: a clock that changes during the finals, and a machine with other jobs on it.
 * in -> out: simulated clocks and delays -> rounds measured again, winner -> Check suite. */
#include "generator/clock.h"
#include "tests/simulated_machine.h"
#include "tests/suites.h"

/* Of a round in which the clock changes midway nothing is left, unless it changes each time. A
 * candidate that changes alone is no clock. */
static const struct {
  int changes;
  double change;
  int alone, rounds_again, unsteady;
} clocks[] = {{0, 1, 0, 0, 0},    {1, 1.08, 0, 1, 0},  {1, 0.93, 0, 1, 0}, {2, 1.03, 0, 1, 1},
              {9, 1.08, 0, 1, 1}, {9, 1.002, 0, 0, 0}, {9, 1.08, 2, 0, 0}};

START_TEST(a_clock_that_changes_is_noticed) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  s->machine->changes = clocks[_i].changes;
  s->machine->change = clocks[_i].change;
  s->machine->alone = clocks[_i].alone;
  for (int n = 1; n < s->candidates.count; n++) s->machine->us[n] = n <= 6 ? 100 + 2 * n : 130;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(s->summary.rounds_again, clocks[_i].rounds_again);
  ck_assert_int_eq(s->summary.unsteady, clocks[_i].unsteady);
  ck_assert_int_eq(s->machine->rounds, 1 + clocks[_i].rounds_again);
  ck_assert_int_eq(best_of(s), 1);
  for (int n = 0; n < s->machine->row_count; n++) {
    const struct ft_trial *row = &s->machine->rows[n];
    if (row->outcome != FT_OUTCOME_OK || clocks[_i].changes > clocks[_i].rounds_again) continue;
    const double us = s->machine->us[index_of(s->machine, &row->config)];
    ck_assert_double_eq_tol(row->samples_us[0], row->samples_us[21], 1e-6 * us);
    ck_assert_double_eq_tol(row->median_us, us, 1e-6 * us);
  }
  setting_free(s);
}
END_TEST

/* Machines with other jobs on them, where a tenth of all samples is up to 10 % late. A request that
 * is tuned five times has the same winner, or one as good. */
START_TEST(a_busy_machine_does_not_decide) {
  enum { MACHINES = 40, TIMES = 5 };
  const uint64_t seed = ft_seed_now();
  int changed = 0;
  for (int m = 0; m < MACHINES; m++) {
    struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
    s->machine->random = seed + (uint64_t)m;
    s->machine->noise = 0.01;
    s->options.again = true;
    for (int n = 1; n < s->candidates.count; n++)
      s->machine->us[n] = 100 * (1 + 0.3 * by_chance(s->machine));
    double before_us = 0;
    for (int time = 0; time < TIMES; time++) {
      s->machine->row_count = 0;
      s->machine->drift = 1 + 0.1 * by_chance(s->machine);
      ck_assert_int_eq(search(s), FT_OK);
      const double us = s->machine->us[best_of(s)];
      changed += time > 0 && fabs(us - before_us) > 0.01 * before_us;
      before_us = us;
    }
    setting_free(s);
  }
  ck_assert_msg(changed <= MACHINES * TIMES / 20, "%d of %d winners changed, seed %llu", changed,
                MACHINES * TIMES, (unsigned long long)seed);
}
END_TEST

/* Where all are equal, luck in a screening is no improvement: a search ends when its patience does,
 * mostly. Where luck counted, all 200 candidates were tried in each. */
START_TEST(luck_does_not_prolong_a_search) {
  enum { SEARCHES = 20, PATIENCE = 30 };
  const uint64_t seed = ft_seed_now();
  int tried = 0;
  for (int n = 0; n < SEARCHES; n++) {
    struct setting *s = setting_make(FT_EFFORT_NORMAL);
    s->machine->random = seed + (uint64_t)n;
    s->machine->noise = 0.01;
    for (int i = 0; i < s->candidates.count; i++) s->machine->us[i] = 100;
    ck_assert_int_eq(search(s), FT_OK);
    tried += s->summary.tried;
    setting_free(s);
  }
  ck_assert_msg(tried < SEARCHES * 2 * PATIENCE, "%d tried, seed %llu", tried,
                (unsigned long long)seed);
}
END_TEST

Suite *make_tune_clock_suite(void) {
  Suite *const suite = suite_create("tune_clock");
  TCase *const tests = tcase_create("clock");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_clock_that_changes_is_noticed, 0, sizeof clocks / sizeof *clocks);
  tcase_add_test(tests, a_busy_machine_does_not_decide);
  tcase_add_test(tests, luck_does_not_prolong_a_search);
  suite_add_tcase(suite, tests);
  return suite;
}
