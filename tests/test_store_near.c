/* test_store_near.c: when the winner of another bucket is chosen: from how far away, and from
 * anywhere where nothing can be compiled. in -> out: trials of other problems -> Check suite. */
#include "tests/suites.h"

#include "tests/store_fixture.h"

#define PROBLEM     "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"
#define NEARBY      "forward bf16 d128 hq16 hkv16 b4 nq4096 nk4096 causal"   /* 1 octave away */
#define BEYOND      "forward bf16 d128 hq16 hkv16 b2 nq8192 nk8192 causal"   /* 2 */
#define FAR_OFF     "forward bf16 d128 hq16 hkv16 b2 nq65536 nk65536 causal" /* 8 */
#define OTHER_CLASS "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096"

static struct fixture fixture;

static void set_up(void) {
  fixture_open(&fixture);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static struct ft_choice choose_so(struct ft_store *store, const char *request, bool from_anywhere) {
  const struct ft_digest templates = digest_of_text("templates 1");
  return choose_for(store, request,
                    (struct ft_query){.device = CLASS_H200,
                                      .templates = &templates,
                                      .from_anywhere = from_anywhere});
}

static struct ft_choice choose(struct ft_store *store, const char *request) {
  return choose_so(store, request, false);
}

/* Beyond an octave a winner says less than what is chosen without it, whoever measured it. */
START_TEST(winners_are_taken_from_an_octave_away_at_most) {
  struct ft_store *const store = open_store(&fixture);
  put_trial(store, make_trial(FAR_OFF, CLASS_H200, 1, 10));
  ck_assert_int_eq(choose(store, PROBLEM).hit, FT_HIT_DEFAULT);
  ck_assert_double_eq(choose(store, PROBLEM).octaves, 8);
  put_trial(store, make_trial(BEYOND, CLASS_H200, 2, 10));
  ck_assert_int_eq(choose(store, PROBLEM).hit, FT_HIT_DEFAULT);
  ck_assert_double_eq(choose(store, PROBLEM).octaves, 2); /* of the nearer one */
  put_trial(store, make_trial(NEARBY, CLASS_H200, 3, 10));
  assert_choice(choose(store, PROBLEM), FT_HIT_NEAR, 3);
  assert_choice(choose(store, BEYOND), FT_HIT_EXACT, 2);
  ck_assert_double_eq(choose(store, BEYOND).octaves, 0);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* For who can compile nothing. */
START_TEST(a_winner_from_anywhere_is_taken_where_it_is_asked_for) {
  struct ft_store *const store = open_store(&fixture);
  put_trial(store, make_trial(OTHER_CLASS, CLASS_H200, 1, 10));
  ck_assert_int_eq(choose_so(store, PROBLEM, true).hit, FT_HIT_DEFAULT);
  put_trial(store, make_trial(FAR_OFF, CLASS_H200, 2, 10));
  put_trial(store, make_trial(BEYOND, CLASS_H200, 3, 10));
  const struct ft_choice choice = choose_so(store, PROBLEM, true);
  assert_choice(choice, FT_HIT_NEAR, 3);
  ck_assert_ptr_nonnull(strstr(choice.note, "2 octaves away"));
  ft_store_close(store);
}
END_TEST

/* The keys of few queries are divided among blocks by how many tiles there are. */
START_TEST(few_queries_take_the_winner_of_their_own_bucket_alone) {
  struct ft_store *const store = open_store(&fixture);
  put_trial(store, make_trial("forward bf16 d128 hq32 hkv8 b16 nq16 nk4096", CLASS_H200, 1, 10));
  put_trial(store, make_trial("forward bf16 d128 hq32 hkv8 b16 nq64 nk4096", CLASS_H200, 2, 10));
  assert_choice(choose(store, "forward bf16 d128 hq32 hkv8 b16 nq15 nk4000"), FT_HIT_EXACT, 1);
  ck_assert_int_eq(choose(store, "forward bf16 d128 hq32 hkv8 b16 nq8 nk4096").hit, FT_HIT_DEFAULT);
  ck_assert_int_eq(choose(store, "forward bf16 d128 hq32 hkv8 b8 nq16 nk4096").hit, FT_HIT_DEFAULT);
  assert_choice(choose(store, "forward bf16 d128 hq32 hkv8 b16 nq64 nk8192"), FT_HIT_NEAR, 2);
  ft_store_close(store);
}
END_TEST

/* A default that won says that the default is good there, and not that a copy of it is elsewhere.
 */
START_TEST(a_default_that_won_elsewhere_is_told) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_trial trial = make_trial(NEARBY, CLASS_H200, 1, 10);
  trial.is_default = 1;
  put_trial(store, trial);
  ck_assert(choose(store, PROBLEM).default_won);
  ck_assert(!choose(store, NEARBY).default_won);
  trial = make_trial(OTHER_CLASS, CLASS_H200, 2, 10);
  trial.outcome = FT_OUTCOME_PREDICTED;
  trial.is_default = 1;
  put_trial(store, trial);
  assert_choice(choose(store, OTHER_CLASS), FT_HIT_MODEL, 2);
  ck_assert(!choose(store, OTHER_CLASS).default_won);
  ft_store_close(store);
}
END_TEST

/* A winner of even rows says little of a mask with a row that all others wait for. */
START_TEST(masks_with_other_longest_rows_are_not_near) {
  static const char even[] = "forward bf16 d128 hq16 nq4096 mask=64x64@0.25";
  static const char longer[] = "forward bf16 d128 hq16 nq4096 mask=64x64@0.25,2";
  static const char longest[] = "forward bf16 d128 hq16 nq4096 mask=64x64@0.25,4";
  struct ft_store *const store = open_store(&fixture);
  put_trial(store, make_trial(even, CLASS_H200, 1, 100));
  assert_choice(choose(store, longer), FT_HIT_NEAR, 1);
  ck_assert_int_eq(choose(store, longest).hit, FT_HIT_DEFAULT);
  put_trial(store, make_trial(longer, CLASS_H200, 2, 100));
  assert_choice(choose(store, longest), FT_HIT_NEAR, 2);
  assert_choice(choose(store, even), FT_HIT_EXACT, 1);
  ft_store_close(store);
}
END_TEST

Suite *make_store_near_suite(void) {
  Suite *const suite = suite_create("store_near");
  TCase *const tests = tcase_create("store_near");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, winners_are_taken_from_an_octave_away_at_most);
  tcase_add_test(tests, a_winner_from_anywhere_is_taken_where_it_is_asked_for);
  tcase_add_test(tests, few_queries_take_the_winner_of_their_own_bucket_alone);
  tcase_add_test(tests, a_default_that_won_elsewhere_is_told);
  tcase_add_test(tests, masks_with_other_longest_rows_are_not_near);
  suite_add_tcase(suite, tests);
  return suite;
}
