/* test_measure_stats.c: medians, spreads and percentiles of samples.
 * in -> out: samples of known statistics, random ones (seed printed) -> Check suite. */
#include "tests/suites.h"

#include <stdlib.h>
#include <time.h>

#include "cache/samples.h"
#include "tuner/search/measure.h"

static struct ft_timing timing_of(const double *samples, int count) {
  struct ft_timing timing = {.sample_count = count};
  for (int n = 0; n < count; n++) timing.samples_us[n] = samples[n];
  ft_timing_summarise(&timing);
  return timing;
}

START_TEST(known_figures) {
  static const double odd[] = {5, 1, 3, 2, 4};
  struct ft_timing timing = timing_of(odd, 5);
  ck_assert_double_eq(timing.median_us, 3);
  ck_assert_double_eq(timing.best_us, 1);
  ck_assert_double_eq_tol(timing.spread_us, (4.2 - 1.8) / 2, 1e-12);
  static const double even[] = {4, 1, 2, 3};
  ck_assert_double_eq(timing_of(even, 4).median_us, 2.5);
  static const double one[] = {7};
  timing = timing_of(one, 1);
  ck_assert(timing.median_us == 7 && timing.spread_us == 0 && timing.best_us == 7);
  timing = timing_of(one, 0);
  ck_assert(timing.median_us == 0 && timing.spread_us == 0 && timing.best_us == 0);
}
END_TEST

START_TEST(one_outlier_moves_nothing) {
  static const double calm[] = {10, 10, 10, 10, 10, 10, 10};
  double disturbed[7];
  for (int n = 0; n < 7; n++) disturbed[n] = calm[n];
  disturbed[3] = 1000;
  const struct ft_timing timing = timing_of(disturbed, 7);
  ck_assert_double_eq(timing.median_us, 10);
  ck_assert_double_eq(timing.spread_us, 0);
}
END_TEST

/* Of any samples: half lie below the median, half above; the samples keep their order. */
START_TEST(median_halves) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  unsigned short state[3] = {(unsigned short)now.tv_nsec, (unsigned short)(now.tv_nsec >> 16), 7};
  for (int trial = 0; trial < 1000; trial++) {
    double samples[FT_TRIAL_SAMPLES];
    const int count = 1 + (int)(erand48(state) * FT_TRIAL_SAMPLES);
    for (int n = 0; n < count; n++) samples[n] = erand48(state);
    const struct ft_timing timing = timing_of(samples, count);
    int below = 0, above = 0;
    for (int n = 0; n < count; n++) {
      ck_assert_double_eq(timing.samples_us[n], samples[n]);
      below += samples[n] < timing.median_us;
      above += samples[n] > timing.median_us;
    }
    ck_assert_msg(below <= count / 2 && above <= count / 2, "seed %ld: %d below, %d above of %d",
                  now.tv_nsec, below, above, count);
  }
}
END_TEST

START_TEST(percentiles_interpolate) {
  static const double sorted[] = {0, 10, 20};
  ck_assert_double_eq(ft_percentile(sorted, 3, 0), 0);
  ck_assert_double_eq(ft_percentile(sorted, 3, 0.25), 5);
  ck_assert_double_eq(ft_percentile(sorted, 3, 1), 20);
}
END_TEST

Suite *make_measure_stats_suite(void) {
  Suite *suite = suite_create("measure_stats");
  TCase *tcase = tcase_create("measure_stats");
  tcase_add_test(tcase, known_figures);
  tcase_add_test(tcase, one_outlier_moves_nothing);
  tcase_add_test(tcase, median_halves);
  tcase_add_test(tcase, percentiles_interpolate);
  suite_add_tcase(suite, tcase);
  return suite;
}
