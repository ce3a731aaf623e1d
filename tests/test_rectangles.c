/* test_rectangles.c: rectangles of queries and keys as ranges of keys.
 * in -> out: random rectangles -> each query's ranges beside a look at all pairs; bad rectangles
 * -> what is wrong with them. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/fatune.h"
#include "tests/fresh_seed.h"
#include "tests/score_lab.h"
#include "tests/suites.h"

enum { NQ = 40, NK = 56, MOST = 7, ROUNDS = 400 };

static int64_t draw(uint64_t *random, int64_t begin, int64_t end) {
  return begin + (int64_t)(lab_random(random) % (uint64_t)(end - begin));
}

static fatune_rectangle draw_rectangle(uint64_t *random) {
  fatune_rectangle r = {.causal = (int)draw(random, 0, 2)};
  r.query_begin = draw(random, 0, NQ);
  r.query_end = draw(random, r.query_begin + 1, NQ + 1);
  r.key_begin = draw(random, 0, NK);
  r.key_end = draw(random, r.key_begin + 1, NK + 1);
  return r;
}

/* As the header says it. */
static bool sees(const fatune_rectangle *r, int64_t i, int64_t j) {
  const int64_t n = r->query_end - 1 - i;
  return i >= r->query_begin && i < r->query_end && j >= r->key_begin &&
         j < r->key_end - (r->causal ? n : 0);
}

/* Fills in which keys query i sees; returns how many ranges they are. */
static int ranges_of(const fatune_rectangle *rectangles, int count, int64_t i, bool *seen) {
  int ranges = 0;
  for (int64_t j = 0; j < NK; ++j) {
    seen[j] = false;
    for (int n = 0; n < count; ++n) seen[j] |= sees(&rectangles[n], i, j);
    ranges += seen[j] && (j == 0 || !seen[j - 1]);
  }
  return ranges;
}

static bool row_is_right(const int32_t *bounds, const bool *seen) {
  for (int64_t j = 0; j < NK; ++j) {
    int within = 0;
    for (int n = 0; n < 4; ++n) within += j >= bounds[2 * n] && j < bounds[2 * n + 1];
    if (within != seen[j]) return false; /* nor twice */
  }
  return true;
}

START_TEST(ranges_are_the_union) {
  const uint64_t seed = fresh_seed();
  uint64_t random = seed;
  int refused = 0, empty = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    fatune_rectangle rectangles[MOST];
    int32_t bounds[NQ][8];
    bool seen[NK];
    int most = 0;
    const int count = (int)draw(&random, 0, MOST + 1);
    for (int n = 0; n < count; ++n) rectangles[n] = draw_rectangle(&random);
    memset(bounds, 0x7F, sizeof bounds);
    const int status = fatune_rectangle_bounds(bounds[0], NQ, NK, rectangles, count);
    for (int64_t i = 0; i < NQ; ++i) {
      const int ranges = ranges_of(rectangles, count, i, seen);
      most = ranges > most ? ranges : most;
      empty += ranges == 0;
      ck_assert_msg(status != FATUNE_OK || row_is_right(bounds[i], seen), "seed %llu, query %lld",
                    (unsigned long long)seed, (long long)i);
    }
    ck_assert_int_eq(status, most > 4 ? FATUNE_E_ARGUMENT : FATUNE_OK);
    refused += status != FATUNE_OK;
  }
  ck_assert_msg(refused < ROUNDS / 2 && empty > ROUNDS, "%d refused, %d rows empty", refused,
                empty);
}
END_TEST

#define BAD(word, ...)                                                                             \
  do {                                                                                             \
    const fatune_rectangle two[] = {{0, NQ, 0, NK, 0}, __VA_ARGS__};                               \
    int32_t of_bad[NQ * 8];                                                                        \
    ck_assert_int_eq(fatune_rectangle_bounds(of_bad, NQ, NK, two, 2), FATUNE_E_ARGUMENT);          \
    ck_assert_msg(strstr(fatune_detail(), word) != NULL, "%s", fatune_detail());                   \
  } while (0)

START_TEST(bad_rectangles_are_named) {
  static const fatune_rectangle apart[] = {
      {3, 5, 0, 2, 0}, {3, 5, 3, 4, 0}, {4, 5, 5, 6, 0}, {3, 5, 7, 8, 0}, {3, 5, 9, 10, 0}};
  int32_t bounds[NQ * 8];
  BAD("rectangles[1] has queries from 3 to 3", {3, 3, 0, 4, 0});
  BAD("rectangles[1] has queries from -1 to 3", {-1, 3, 0, 4, 0});
  BAD("rectangles[1] has queries from 0 to 41; allowed: 0 <= begin < end <= 40", {0, 41, 0, 4, 0});
  BAD("rectangles[1] has keys from 9 to 4", {0, 3, 9, 4, 0});
  BAD("rectangles[1] has keys from 0 to 57; allowed: 0 <= begin < end <= 56", {0, 3, 0, 57, 0});
  BAD("rectangles[1].causal is 2; allowed: 0, 1", {0, 3, 0, 4, 2});
  ck_assert_int_eq(fatune_rectangle_bounds(bounds, NQ, NK, apart, 5), FATUNE_E_ARGUMENT);
  ck_assert_msg(strstr(fatune_detail(), "query 4 sees 5 ranges of keys") != NULL, "%s",
                fatune_detail());
  ck_assert_int_eq(fatune_rectangle_bounds(bounds, NQ, NK, apart, 4), FATUNE_OK);
  ck_assert_int_eq(fatune_rectangle_bounds(NULL, NQ, NK, apart, 4), FATUNE_E_ARGUMENT);
  ck_assert_int_eq(fatune_rectangle_bounds(bounds, NQ, NK, NULL, 1), FATUNE_E_ARGUMENT);
  ck_assert_int_eq(fatune_rectangle_bounds(bounds, NQ, NK, NULL, -1), FATUNE_E_ARGUMENT);
  ck_assert_int_eq(fatune_rectangle_bounds(bounds, 0, NK, NULL, 0), FATUNE_E_ARGUMENT);
  ck_assert_int_eq(fatune_rectangle_bounds(bounds, NQ, 1 << 24, NULL, 0), FATUNE_E_ARGUMENT);
}
END_TEST

Suite *make_rectangles_suite(void) {
  Suite *const suite = suite_create("rectangles");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, ranges_are_the_union);
  tcase_add_test(tests, bad_rectangles_are_named);
  suite_add_tcase(suite, tests);
  return suite;
}
