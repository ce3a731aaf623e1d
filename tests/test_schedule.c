/* test_schedule.c: shares of tiles, beside a walk through them as the kernels take it.
 * The walk says what templates/parts/schedule_balanced.cu.in says, round after round of each block.
 */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "generator/schedule.h"
#include "tests/fresh_seed.h"
#include "tests/suites.h"

enum { BLOCKS_MOST = 200, TILES_MOST = 100000 };

struct walk {
  const struct ft_shares *shares;
  int64_t remainder; /* batch_heads, dealt one by one */
  int8_t taken[TILES_MOST];
};
static struct walk walk;

static int64_t steps_of(const struct ft_shares *shares, int64_t rank) {
  const struct ft_visibility *const visible = &shares->visibility;
  const int64_t q0 = (shares->tiles - 1 - rank) * shares->rows;
  int64_t most = 0;
  for (int64_t i = q0; i < q0 + shares->rows && i < visible->nq << shares->pack_bits; i++) {
    int64_t seen = 0; /* keys of row i, counted */
    while (seen < visible->nk && seen <= (i >> shares->pack_bits) + visible->last_diagonal) seen++;
    if (seen > most) most = seen;
  }
  const int64_t steps = (most + shares->keys - 1) / shares->keys;
  return steps > 0 ? steps : 1;
}

static int64_t take(int64_t head, int64_t rank, const int64_t *steps) {
  int8_t *const taken = &walk.taken[head * walk.shares->tiles + rank];
  ck_assert_msg(!*taken, "head %d, rank %d taken twice", (int)head, (int)rank);
  *taken = 1;
  return steps[rank] + 1;
}

static int64_t share_of(int64_t block, const int64_t *steps) {
  const struct ft_shares *const shares = walk.shares;
  const int64_t pairs_of_head = (shares->tiles + 1) / 2, paired = shares->heads - walk.remainder;
  const int64_t pairs = pairs_of_head * paired;
  const int64_t pair_rounds = (pairs + shares->blocks - 1) / shares->blocks;
  int64_t share = 0;
  for (int64_t round = 0;; round++) {
    const bool reversed = round >= pair_rounds && (round - pair_rounds) % 2 == 0;
    const int64_t place = round * shares->blocks + (reversed ? shares->blocks - 1 - block : block);
    if (place >= pairs + shares->tiles * walk.remainder) return share;
    if (place >= pairs) {
      const int64_t number = place - pairs;
      share += take(paired + number % walk.remainder, number / walk.remainder, steps);
    } else {
      const int64_t head = place / pairs_of_head, pair = place % pairs_of_head;
      share += take(head, pair, steps);
      if (2 * pair + 1 != shares->tiles) share += take(head, shares->tiles - 1 - pair, steps);
    }
  }
}

/* Longest share over the mean. */
static double walked(const struct ft_shares *shares, int64_t remainder) {
  walk.shares = shares;
  walk.remainder = remainder;
  memset(walk.taken, 0, sizeof walk.taken);
  int64_t *const steps = calloc((size_t)shares->tiles, sizeof *steps);
  ck_assert_ptr_nonnull(steps);
  for (int64_t rank = 0; rank < shares->tiles; rank++) steps[rank] = steps_of(shares, rank);
  int64_t longest = 0, all = 0;
  for (int64_t block = 0; block < shares->blocks; block++) {
    const int64_t share = share_of(block, steps);
    if (share > longest) longest = share;
    all += share;
  }
  free(steps);
  for (int64_t i = 0; i < shares->heads * shares->tiles; i++) ck_assert(walk.taken[i]);
  return (double)(longest * shares->blocks) / (double)all;
}

/* As many queries as keys. */
static struct ft_shares square(int64_t length, int64_t heads, int64_t rows, int64_t keys) {
  return (struct ft_shares){.tiles = (length + rows - 1) / rows,
                            .heads = heads,
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
    struct ft_shares shares = square(200 + rand() % 3000, 1 + rand() % 300, rows, keys);
    shares.pack_bits = rand() % 3;
    shares.tiles = ((shares.visibility.nq << shares.pack_bits) + rows - 1) / rows;
    if (shares.tiles % 2 != 0) continue; /* of an odd number one is alone, which is not looked at */
    shares.blocks = 1 + rand() % BLOCKS_MOST;
    const int64_t one_by_one = 1 + rand() % shares.heads;
    const double expected = walked(&shares, one_by_one);
    /* All balanced pairs are taken for equally long. They differ by a step rounded up, and by the
     * rows that the last tile lacks: by so many steps of each two. */
    const double apart = (double)rows / (double)keys + 2;
    const double pair = (double)(steps_of(&shares, 0) + steps_of(&shares, shares.tiles - 1) + 2);
    ck_assert_msg(
        fabs(ft_shares_unevenness(&shares, one_by_one) - expected) <= apart / pair * expected,
        "%g, walked %g, of %d tiles, seed %llu", ft_shares_unevenness(&shares, one_by_one),
        expected, (int)shares.tiles, (unsigned long long)seed);
  }
}
END_TEST

/* Shapes of 16384 queries in all on 132 blocks; what half of an L2 of 50 MiB holds, and what the
 * busiest block had to do more than the mean with that. */
static const struct {
  int64_t length, heads, rows, keys, half;
  double before, after;
} shapes[] = {
    {4096, 128, 256, 64, 25, 1.015, 1.004},  {8192, 64, 256, 64, 12, 1.011, 1.003},
    {16384, 32, 256, 64, 6, 1.010, 1.003},   {4096, 64, 128, 128, 12, 1.012, 1.005},
    {8192, 32, 128, 128, 6, 1.011, 1.003},   {4096, 32, 128, 64, 6, 1.029, 1.004},
    {8192, 16, 128, 64, 3, 1.029, 1.004},    {16384, 8, 128, 64, 1, 1.029, 1.006},
    {2048, 256, 256, 64, 50, 1.015, 1.0075},
};

START_TEST(shares_come_out_even) {
  struct ft_shares shares =
      square(shapes[_i].length, shapes[_i].heads, shapes[_i].rows, shapes[_i].keys);
  shares.least = (shapes[_i].half + 1) / 2;
  shares.most = shapes[_i].half * 3 / 2 > 1 ? shapes[_i].half * 3 / 2 : 2;
  ck_assert_double_gt(walked(&shares, shapes[_i].half), shapes[_i].before);
  const int64_t remainder = ft_shares_remainder(&shares);
  ck_assert_int_ge(remainder, shares.least);
  ck_assert_int_le(remainder, shares.most);
  ck_assert_double_lt(walked(&shares, remainder), shapes[_i].after);
}
END_TEST

START_TEST(remembers_the_last_few) {
  const struct ft_shares kinds[] = {square(4096, 128, 256, 64), square(2048, 256, 256, 64),
                                    square(1024, 512, 256, 64), square(512, 1024, 256, 64),
                                    square(8192, 64, 256, 64),  square(3000, 100, 192, 80)};
  int64_t first[6];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 6; i++) {
      struct ft_shares shares = kinds[i];
      shares.least = 5;
      shares.most = 60;
      if (round == 0) first[i] = ft_shares_remainder(&shares);
      ck_assert_int_eq(ft_shares_remainder(&shares), first[i]);
      shares.least = shares.most = 7 + i; /* another shares, only in what is allowed */
      ck_assert_int_eq(ft_shares_remainder(&shares), 7 + i);
    }
  }
}
END_TEST

START_TEST(takes_any_number_of_tiles) {
  struct ft_shares shares = square(1000000, 3, 64, 32);
  shares.least = 1;
  shares.most = 3;
  ck_assert_int_eq(ft_shares_remainder(&shares), 1); /* enough tiles as it is */
  shares.visibility.nk = 1;
  shares.visibility.last_diagonal = -1000000;
  shares.most = 2;
  ck_assert_int_ge(ft_shares_remainder(&shares), 1);
  shares.blocks = 100000;
  ck_assert_double_eq(ft_shares_unevenness(&shares, 1), 1);
}
END_TEST

/* What each form's blocks share out, counted by hand: 5 tiles of each of 7 batch_heads. */
START_TEST(no_block_is_without_work) {
  enum { TILES = 5, HEADS = 7, MANY = 1000 };
  ck_assert_int_eq(ft_schedule_blocks(FT_SCHEDULE_STATIC, TILES, HEADS, 0, 1, MANY), 35);
  ck_assert_int_eq(ft_schedule_blocks(FT_SCHEDULE_STATIC, TILES, HEADS, 0, 2, MANY), 2 * 21);
  ck_assert_int_eq(ft_schedule_blocks(FT_SCHEDULE_LPT, TILES, HEADS, 3, 1, MANY), 35);
  ck_assert_int_eq(ft_schedule_blocks(FT_SCHEDULE_BALANCED, TILES, HEADS, 2, 1, MANY), 15 + 10);
  ck_assert_int_eq(ft_schedule_blocks(FT_SCHEDULE_BALANCED, TILES, HEADS, 2, 1, 24), 24);
  ck_assert_int_eq(ft_schedule_blocks(FT_SCHEDULE_STATIC, TILES, HEADS, 0, 2, 25), 24);
}
END_TEST

START_TEST(tiles_fill_their_blocks_of_a_mask) {
  ck_assert_int_eq(ft_schedule_tiles(129, 0, 64), 3);
  ck_assert_int_eq(ft_schedule_tiles(128, 0, 64), 2);
  ck_assert_int_eq(ft_schedule_tiles(129, 128, 64), 4);
}
END_TEST

/* Any numbers: sections are no larger than asked for, and the last one is as large as the others
 * or, where no number above the half divides the heads, less than a section short. */
START_TEST(sections_are_even) {
  ck_assert_int_eq(ft_schedule_even_section(5, 32), 4);
  ck_assert_int_eq(ft_schedule_even_section(40, 32), 32);
  ck_assert_int_eq(ft_schedule_even_section(19, 25), 13);
  ck_assert_int_eq(ft_schedule_even_section(1, 7), 1);
  for (int64_t heads = 1; heads < 100; heads++)
    for (int64_t most = 1; most < 110; most++) {
      const int64_t section = ft_schedule_even_section(most, heads);
      ck_assert_int_ge(section, 1);
      ck_assert_int_le(section, most < heads ? most : heads);
      bool divides = false;
      for (int64_t n = most / 2 + 1; n <= most; n++) divides = divides || heads % n == 0;
      if (divides) ck_assert_int_eq(heads % section, 0);
      if (heads > 1) ck_assert_int_ge(2 * section, most < heads ? most : heads);
    }
}
END_TEST

Suite *make_schedule_suite(void) {
  Suite *suite = suite_create("schedule");
  TCase *tcase = tcase_create("schedule");
  tcase_add_test(tcase, is_as_uneven_as_a_walk_finds);
  tcase_add_loop_test(tcase, shares_come_out_even, 0, sizeof shapes / sizeof shapes[0]);
  tcase_add_test(tcase, remembers_the_last_few);
  tcase_add_test(tcase, takes_any_number_of_tiles);
  tcase_add_test(tcase, no_block_is_without_work);
  tcase_add_test(tcase, tiles_fill_their_blocks_of_a_mask);
  tcase_add_test(tcase, sections_are_even);
  suite_add_tcase(suite, tcase);
  return suite;
}
