/* test_visibility.c: which keys a query sees, beside a loop over all pairs.
 * in -> out: generator/visibility.h -> Check suite. */
#include <check.h>
#include <stdlib.h>

#include "generator/visibility.h"
#include "tests/fresh_seed.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

enum { ROUNDS = 400, LENGTH_MOST = 90 };

static uint64_t seed;

static int64_t random_between(int64_t least, int64_t most) {
  return least + rand() % (most - least + 1);
}

/* Any diagonals, most of them within the lengths. */
static struct ft_visibility random_visibility(void) {
  const int64_t nq = random_between(1, LENGTH_MOST), nk = random_between(1, LENGTH_MOST);
  const int64_t one = random_between(-nq, nk), other = random_between(-nq, nk);
  return (struct ft_visibility){.nq = nq,
                                .nk = nk,
                                .first_diagonal = one < other ? one : other,
                                .last_diagonal = one < other ? other : one};
}

static void begin_rounds(void) {
  seed = fresh_seed();
  srand((unsigned)seed);
}

#define ASSERT(condition, v)                                                                       \
  ck_assert_msg(condition, "nq %d nk %d diagonals %d to %d, seed %llu", (int)(v).nq, (int)(v).nk,  \
                (int)(v).first_diagonal, (int)(v).last_diagonal, (unsigned long long)seed)

START_TEST(requests_hide_what_their_words_say) {
  begin_rounds();
  for (int round = 0; round < ROUNDS; round++) {
    struct ft_request request = known_request("d64 nq1");
    request.causal = (enum ft_causal)(rand() % 3);
    request.seqlen_q = random_between(1, LENGTH_MOST);
    request.seqlen_k = random_between(1, LENGTH_MOST);
    request.window = (enum ft_window)(rand() % 3);
    if (request.window != FT_WINDOW_NONE) {
      request.window_left = random_between(-1, rand() % 3 ? LENGTH_MOST : 2);
      request.window_right = random_between(-1, rand() % 3 ? LENGTH_MOST : 2);
    }
    const struct ft_visibility v = ft_visibility_of(&request);
    bool varies = false;
    int64_t pairs = 0;
    ASSERT(v.nq == request.seqlen_q && v.nk == request.seqlen_k, v);
    ASSERT(-v.nq <= v.first_diagonal && v.first_diagonal <= v.last_diagonal, v);
    ASSERT(v.last_diagonal <= v.nk, v);
    const bool first = ft_hides_first_keys(&request), last = ft_hides_last_keys(&request);
    for (int64_t i = 0; i < v.nq; i++) {
      for (int64_t j = 0; j < v.nk; j++) {
        ASSERT(ft_sees(&v, i, j) == rule_lets_see(&request, i, j), v);
        ASSERT(ft_sees(&v, i, j) || (j < ft_keys_of(&v, i).begin ? first : last), v);
        pairs += ft_sees(&v, i, j);
        varies |= ft_sees(&v, i, j) != ft_sees(&v, 0, j);
      }
    }
    ASSERT(ft_visible_pairs(&v) == (double)pairs, v);
    ASSERT(ft_visibility_varies(&request) || !varies, v);
    ASSERT(ft_visibility_varies(&request) ==
               (request.causal != FT_CAUSAL_NONE || request.window != FT_WINDOW_NONE),
           v);
  }
}
END_TEST

START_TEST(keys_and_queries_are_intervals) {
  begin_rounds();
  for (int round = 0; round < ROUNDS; round++) {
    const struct ft_visibility v = random_visibility();
    struct ft_interval before = {0, 0};
    for (int64_t i = 0; i < v.nq; i++) {
      const struct ft_interval keys = ft_keys_of(&v, i);
      ASSERT(0 <= keys.begin && keys.begin <= keys.end && keys.end <= v.nk, v);
      ASSERT(before.begin <= keys.begin && before.end <= keys.end, v);
      before = keys;
      for (int64_t j = 0; j < v.nk; j++)
        ASSERT(ft_sees(&v, i, j) == (keys.begin <= j && j < keys.end), v);
    }
    before = (struct ft_interval){0, 0};
    for (int64_t j = 0; j < v.nk; j++) {
      const struct ft_interval queries = ft_queries_of(&v, j);
      ASSERT(0 <= queries.begin && queries.begin <= queries.end && queries.end <= v.nq, v);
      ASSERT(before.begin <= queries.begin && before.end <= queries.end, v);
      before = queries;
      for (int64_t i = 0; i < v.nq; i++)
        ASSERT(ft_sees(&v, i, j) == (queries.begin <= i && i < queries.end), v);
    }
  }
}
END_TEST

START_TEST(pairs_are_counted) {
  begin_rounds();
  for (int round = 0; round < ROUNDS; round++) {
    const struct ft_visibility v = random_visibility();
    int64_t pairs = 0;
    for (int64_t i = 0; i < v.nq; i++)
      for (int64_t j = 0; j < v.nk; j++) pairs += ft_sees(&v, i, j);
    ASSERT(ft_visible_pairs(&v) == (double)pairs, v);
  }
}
END_TEST

START_TEST(pairs_of_the_greatest_lengths) {
  const struct ft_visibility all = {
      .nq = INT32_MAX, .nk = INT32_MAX, .first_diagonal = -INT32_MAX, .last_diagonal = INT32_MAX};
  const struct ft_visibility half = {
      .nq = INT32_MAX, .nk = INT32_MAX, .first_diagonal = -INT32_MAX};
  const double n = INT32_MAX;
  ck_assert_double_eq_tol(ft_visible_pairs(&all) / (n * n), 1, 1e-15);
  ck_assert_double_eq_tol(ft_visible_pairs(&half) / (n * (n + 1) / 2), 1, 1e-15);
}
END_TEST

/* Whether step `step` has a visible pair, and whether it has only such. */
static void look(const struct ft_visibility *v, struct ft_interval rows, int64_t step, int block,
                 bool of_queries, bool *any, bool *all) {
  const int64_t rows_most = of_queries ? v->nq : v->nk, most = of_queries ? v->nk : v->nq;
  *any = false;
  *all = (step + 1) * block <= most;
  for (int64_t row = rows.begin; row < rows.end && row < rows_most; row++) {
    for (int64_t other = step * block; other < (step + 1) * block && other < most; other++) {
      const bool sees = of_queries ? ft_sees(v, row, other) : ft_sees(v, other, row);
      *any |= sees;
      *all &= sees;
    }
  }
}

START_TEST(steps_of_a_tile) {
  const bool of_queries = _i == 0;
  begin_rounds();
  for (int round = 0; round < ROUNDS; round++) {
    const struct ft_visibility v = random_visibility();
    const int rows = (int)random_between(1, 40), block = (int)random_between(1, 40);
    const int64_t length = of_queries ? v.nq : v.nk, others = of_queries ? v.nk : v.nq;
    for (int64_t begin = 0; begin < length; begin += rows) {
      const struct ft_interval tile = {begin, begin + rows};
      const struct ft_steps steps =
          of_queries ? ft_steps_of_queries(&v, tile, block) : ft_steps_of_keys(&v, tile, block);
      ASSERT(steps.begin <= steps.full_begin && steps.full_begin <= steps.full_end, v);
      ASSERT(steps.full_end <= steps.end, v);
      for (int64_t step = 0; step * block < others; step++) {
        bool any, all;
        look(&v, tile, step, block, of_queries, &any, &all);
        ASSERT(any == (steps.begin <= step && step < steps.end), v);
        ASSERT(all == (steps.full_begin <= step && step < steps.full_end), v);
      }
    }
  }
}
END_TEST

Suite *make_visibility_suite(void) {
  Suite *suite = suite_create("visibility");
  TCase *tcase = tcase_create("visibility");
  tcase_add_test(tcase, requests_hide_what_their_words_say);
  tcase_add_test(tcase, keys_and_queries_are_intervals);
  tcase_add_test(tcase, pairs_are_counted);
  tcase_add_test(tcase, pairs_of_the_greatest_lengths);
  tcase_add_loop_test(tcase, steps_of_a_tile, 0, 2);
  suite_add_tcase(suite, tcase);
  return suite;
}
