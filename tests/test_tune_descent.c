/* test_tune_descent.c: effort normal follows the knobs of the best so far.
 * in -> out: times by distance from a config that the model puts far back -> winner, trials; a
 * candidate that takes long to compile -> the order of trials -> Check suite. */
#include "generator/clock.h"
#include "tests/simulated_machine.h"
#include "tests/suites.h"

static int distance(const struct ft_config *a, const struct ft_config *b) {
  int different = a->family != b->family;
  for (int n = 0; n < FT_KNOBS_MOST; n++) different += a->knobs[n] != b->knobs[n];
  return different;
}

/* So many candidates of the list are one knob from this one. */
static int neighbours(const struct setting *s, int candidate) {
  int count = 0;
  for (int n = 0; n < s->candidates.count; n++)
    count += distance(&s->candidates.list[n].config, &s->candidates.list[candidate].config) == 1;
  return count;
}

/* By the model alone the target would be found after all trials before it. */
START_TEST(normal_effort_descends_to_the_best) {
  enum { FIRST = 120, TARGETS = 40 };
  const uint64_t seed = ft_seed_now();
  int found = 0, targets = 0;
  for (int t = 0; t < TARGETS; t++) {
    struct setting *s = setting_make(FT_EFFORT_NORMAL);
    s->machine->random = seed + (uint64_t)t;
    const int room = s->candidates.count - FIRST;
    const int target = FIRST + (int)(by_chance(s->machine) * room);
    const struct ft_config config = s->candidates.list[target].config;
    if (neighbours(s, target) > 0) {
      for (int n = 0; n < s->candidates.count; n++)
        s->machine->us[n] = 100 + 10 * distance(&s->candidates.list[n].config, &config);
      ck_assert_int_eq(search(s), FT_OK);
      targets++;
      found += best_of(s) == target && s->summary.tried < target;
    }
    setting_free(s);
  }
  ck_assert_int_ge(targets, TARGETS / 2);
  ck_assert_msg(4 * found >= targets, "%d of %d found, seed %llu", found, targets,
                (unsigned long long)seed);
}
END_TEST

/* Where nothing better comes, what was compiled is what was tried. */
START_TEST(nothing_is_compiled_for_nothing) {
  enum { JOBS = 8 };
  struct setting *s = setting_make(FT_EFFORT_NORMAL);
  s->options.jobs = JOBS;
  for (int n = 0; n < s->candidates.count; n++) s->machine->us[n] = 100 + n;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_lt(s->summary.tried, s->candidates.count);
  ck_assert_int_eq(s->machine->compiles, s->summary.tried);
  setting_free(s);
}
END_TEST

struct order {
  const struct setting *setting;
  int count, candidates[ROWS];
};

static void note_trial(void *payload, const struct ft_tune_progress *progress) {
  struct order *const order = payload;
  order->candidates[order->count++] = index_of(order->setting->machine, &progress->trial->config);
}

/* Tries `tried` candidates with one that takes long to compile; returns its place among them. */
static int place_of_slow(int slow, int tried, int prepare_status, int *prepared) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  struct order order = {.setting = s};
  s->candidates.count = tried;
  s->options.jobs = 4;
  s->options.progress = note_trial;
  s->options.payload = &order;
  s->machine->slow = slow;
  s->machine->slow_ms = 400;
  s->machine->prepare_status = prepare_status;
  ck_assert_int_eq(search(s), prepare_status);
  ck_assert_int_eq(order.count, prepare_status == FT_OK ? tried : 0);
  *prepared = s->machine->prepared;
  int place = 0;
  while (place < order.count && order.candidates[place] != slow) place++;
  setting_free(s);
  return place;
}

/* Others are tried meanwhile, as many as are compiled ahead. */
START_TEST(a_slow_compile_keeps_nothing_waiting) {
  int prepared;
  ck_assert_int_gt(place_of_slow(3, 12, FT_OK, &prepared), 3);
  ck_assert_int_eq(prepared, 1);
}
END_TEST

/* The one that would be used without the search is the second, however long it takes. */
START_TEST(the_first_two_keep_their_places) {
  int prepared;
  ck_assert_int_eq(place_of_slow(1, 12, FT_OK, &prepared), 1);
}
END_TEST

START_TEST(without_its_problems_a_search_ends) {
  int prepared;
  place_of_slow(3, 12, FT_E_MEMORY, &prepared);
  ck_assert_int_eq(prepared, 1);
}
END_TEST

Suite *make_tune_descent_suite(void) {
  Suite *const suite = suite_create("tune_descent");
  TCase *const tests = tcase_create("descent");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, normal_effort_descends_to_the_best);
  tcase_add_test(tests, nothing_is_compiled_for_nothing);
  tcase_add_test(tests, a_slow_compile_keeps_nothing_waiting);
  tcase_add_test(tests, the_first_two_keep_their_places);
  tcase_add_test(tests, without_its_problems_a_search_ends);
  suite_add_tcase(suite, tests);
  return suite;
}
