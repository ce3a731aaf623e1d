/* test_deal.c: shares of tiles, beside a walk through them as the kernels take it.
 * The walk says what templates/parts/keys.cu.in says, turn after turn of each block. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/deal.h"
#include "tests/fresh_seed.h"
#include "tests/suites.h"

enum { BLOCKS_MOST = 200, TILES_MOST = 100000 };

struct walk {
  const struct ft_deal *deal;
  int64_t pairs; /* one by one */
  int8_t taken[TILES_MOST];
};
static struct walk walk;

static int64_t steps_of(const struct ft_deal *deal, int64_t turn) {
  const struct ft_visibility *const visible = &deal->visibility;
  const int64_t q0 = (deal->tiles - 1 - turn) * deal->rows;
  int64_t most = 0;
  for (int64_t i = q0; i < q0 + deal->rows && i < visible->nq << deal->pack_bits; i++) {
    int64_t seen = 0; /* keys of row i, counted */
    while (seen < visible->nk && seen <= (i >> deal->pack_bits) + visible->last_diagonal) seen++;
    if (seen > most) most = seen;
  }
  const int64_t steps = (most + deal->keys - 1) / deal->keys;
  return steps > 0 ? steps : 1;
}

static int64_t take(int64_t pair, int64_t turn, const int64_t *steps) {
  int8_t *const taken = &walk.taken[pair * walk.deal->tiles + turn];
  ck_assert_msg(!*taken, "pair %d, turn %d taken twice", (int)pair, (int)turn);
  *taken = 1;
  return steps[turn] + 1;
}

static int64_t share_of(int64_t block, const int64_t *steps) {
  const struct ft_deal *const deal = walk.deal;
  const int64_t twos_of_pair = (deal->tiles + 1) / 2, in_twos = deal->pairs - walk.pairs;
  const int64_t twos = twos_of_pair * in_twos;
  const int64_t whole_rounds = (twos + deal->blocks - 1) / deal->blocks;
  int64_t share = 0;
  for (int64_t round = 0;; round++) {
    const bool turned = round >= whole_rounds && (round - whole_rounds) % 2 == 0;
    const int64_t place = round * deal->blocks + (turned ? deal->blocks - 1 - block : block);
    if (place >= twos + deal->tiles * walk.pairs) return share;
    if (place >= twos) {
      const int64_t number = place - twos;
      share += take(in_twos + number % walk.pairs, number / walk.pairs, steps);
    } else {
      const int64_t pair = place / twos_of_pair, two = place % twos_of_pair;
      share += take(pair, two, steps);
      if (2 * two + 1 != deal->tiles) share += take(pair, deal->tiles - 1 - two, steps);
    }
  }
}

/* Longest share over the mean. */
static double walked(const struct ft_deal *deal, int64_t pairs) {
  walk.deal = deal;
  walk.pairs = pairs;
  memset(walk.taken, 0, sizeof walk.taken);
  int64_t *const steps = calloc((size_t)deal->tiles, sizeof *steps);
  ck_assert_ptr_nonnull(steps);
  for (int64_t turn = 0; turn < deal->tiles; turn++) steps[turn] = steps_of(deal, turn);
  int64_t longest = 0, all = 0;
  for (int64_t block = 0; block < deal->blocks; block++) {
    const int64_t share = share_of(block, steps);
    if (share > longest) longest = share;
    all += share;
  }
  free(steps);
  for (int64_t i = 0; i < deal->pairs * deal->tiles; i++) ck_assert(walk.taken[i]);
  return (double)(longest * deal->blocks) / (double)all;
}

/* As many queries as keys. */
static struct ft_deal square(int64_t length, int64_t pairs, int64_t rows, int64_t keys) {
  return (struct ft_deal){.tiles = (length + rows - 1) / rows,
                          .pairs = pairs,
                          .blocks = 132,
                          .rows = rows,
                          .keys = keys,
                          .visibility = {length, length, -length, 0}};
}

START_TEST(is_as_uneven_as_a_walk_finds) {
  const uint64_t seed = fresh_seed();
  srand((unsigned)seed);
  for (int round = 0; round < 120; round++) {
    const int64_t rows = 64 * (1 + rand() % 4), keys = 16 * (2 + rand() % 7);
    struct ft_deal deal = square(200 + rand() % 3000, 1 + rand() % 300, rows, keys);
    deal.pack_bits = rand() % 3;
    deal.tiles = ((deal.visibility.nq << deal.pack_bits) + rows - 1) / rows;
    if (deal.tiles % 2 != 0) continue; /* of an odd number one is alone, which is not looked at */
    deal.blocks = 1 + rand() % BLOCKS_MOST;
    const int64_t one_by_one = 1 + rand() % deal.pairs;
    const double expected = walked(&deal, one_by_one);
    /* All twos are taken for equal. They differ by a step rounded up, and by the rows that the last
     * tile lacks: by so many steps of each two. */
    const double apart = (double)rows / (double)keys + 2;
    const double two = (double)(steps_of(&deal, 0) + steps_of(&deal, deal.tiles - 1) + 2);
    ck_assert_msg(fabs(ft_deal_unevenness(&deal, one_by_one) - expected) <= apart / two * expected,
                  "%g, walked %g, of %d tiles, seed %llu", ft_deal_unevenness(&deal, one_by_one),
                  expected, (int)deal.tiles, (unsigned long long)seed);
  }
}
END_TEST

/* Shapes of 16384 queries in all on 132 blocks; what half of an L2 of 50 MiB holds, and what the
 * busiest block had to do more than the mean with that. */
static const struct {
  int64_t length, pairs, rows, keys, half;
  double before, after;
} shapes[] = {
    {4096, 128, 256, 64, 25, 1.015, 1.004},  {8192, 64, 256, 64, 12, 1.011, 1.003},
    {16384, 32, 256, 64, 6, 1.010, 1.003},   {4096, 64, 128, 128, 12, 1.012, 1.005},
    {8192, 32, 128, 128, 6, 1.011, 1.003},   {4096, 32, 128, 64, 6, 1.029, 1.004},
    {8192, 16, 128, 64, 3, 1.029, 1.004},    {16384, 8, 128, 64, 1, 1.029, 1.006},
    {2048, 256, 256, 64, 50, 1.015, 1.0075},
};

START_TEST(shares_come_out_even) {
  struct ft_deal deal =
      square(shapes[_i].length, shapes[_i].pairs, shapes[_i].rows, shapes[_i].keys);
  deal.least = (shapes[_i].half + 1) / 2;
  deal.most = shapes[_i].half * 3 / 2 > 1 ? shapes[_i].half * 3 / 2 : 2;
  ck_assert_double_gt(walked(&deal, shapes[_i].half), shapes[_i].before);
  const int64_t pairs = ft_deal_pairs(&deal);
  ck_assert_int_ge(pairs, deal.least);
  ck_assert_int_le(pairs, deal.most);
  ck_assert_double_lt(walked(&deal, pairs), shapes[_i].after);
}
END_TEST

START_TEST(remembers_the_last_few) {
  const struct ft_deal kinds[] = {square(4096, 128, 256, 64), square(2048, 256, 256, 64),
                                  square(1024, 512, 256, 64), square(512, 1024, 256, 64),
                                  square(8192, 64, 256, 64),  square(3000, 100, 192, 80)};
  int64_t first[6];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 6; i++) {
      struct ft_deal deal = kinds[i];
      deal.least = 5;
      deal.most = 60;
      if (round == 0) first[i] = ft_deal_pairs(&deal);
      ck_assert_int_eq(ft_deal_pairs(&deal), first[i]);
      deal.least = deal.most = 7 + i; /* another deal, only in what is allowed */
      ck_assert_int_eq(ft_deal_pairs(&deal), 7 + i);
    }
  }
}
END_TEST

START_TEST(takes_any_number_of_tiles) {
  struct ft_deal deal = square(1000000, 3, 64, 32);
  deal.least = 1;
  deal.most = 3;
  ck_assert_int_eq(ft_deal_pairs(&deal), 1); /* enough tiles as it is */
  deal.visibility.nk = 1;
  deal.visibility.last_diagonal = -1000000;
  deal.most = 2;
  ck_assert_int_ge(ft_deal_pairs(&deal), 1);
  deal.blocks = 100000;
  ck_assert_double_eq(ft_deal_unevenness(&deal, 1), 1);
}
END_TEST

Suite *make_deal_suite(void) {
  Suite *suite = suite_create("deal");
  TCase *tcase = tcase_create("deal");
  tcase_add_test(tcase, is_as_uneven_as_a_walk_finds);
  tcase_add_loop_test(tcase, shares_come_out_even, 0, sizeof shapes / sizeof shapes[0]);
  tcase_add_test(tcase, remembers_the_last_few);
  tcase_add_test(tcase, takes_any_number_of_tiles);
  suite_add_tcase(suite, tcase);
  return suite;
}
