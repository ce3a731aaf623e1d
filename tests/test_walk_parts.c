/* test_walk_parts.c: which walks of a backward's key tiles are divided.
 * in -> out: kept blocks of random columns -> key tiles by the number of their parts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "generator/walk_parts.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

enum { COLUMNS_MOST = 200 };

static int more_first(const void *left, const void *right) {
  const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
  return a < b ? 1 : a > b ? -1 : 0;
}

static struct ft_columns random_columns(int32_t *counts) {
  const int columns = random_int(1, COLUMNS_MOST);
  for (int n = 0; n < columns; n++)
    counts[n] = random_int(0, 3) ? random_int(0, 20) : random_int(0, 3000);
  qsort(counts, (size_t)columns, sizeof *counts, more_first);
  return (struct ft_columns){.counts = counts,
                             .columns = columns,
                             .tiles = random_int(1, 3),
                             .steps_of_a_block = random_int(1, 8) / 2.0};
}

/* Parts of the key tile of this rank. */
static int parts_of(const struct ft_walk_parts *parts, int64_t rank) {
  for (int c = 0; c < FT_WALK_PARTS_CLASSES; c++)
    if (rank < parts->ends[c]) return FT_WALK_PARTS_MOST >> c;
  return 1;
}

START_TEST(walks_are_divided_by_their_lengths) {
  int32_t counts[COLUMNS_MOST] = {0};
  int divided = 0;
  seed_cases();
  for (int n = 0; n < 2000; n++) {
    const struct ft_columns columns = random_columns(counts);
    const double steps = random_int(1, 200);
    const struct ft_walk_parts parts = ft_walk_parts_of(&columns, steps, INT32_MAX);
    int64_t all = 0;
    for (int64_t rank = 0; rank < columns.columns * columns.tiles; rank++) {
      const int64_t column = rank / columns.tiles;
      const double length = counts[column] * columns.steps_of_a_block;
      const int count = parts_of(&parts, rank);
      ck_assert(count == FT_WALK_PARTS_MOST || length <= steps * count);
      ck_assert(count == 1 || length > steps * count / 2);
      if (count > 1) all += count;
    }
    ck_assert_int_eq(parts.parts, all);
    divided += all > 0;
  }
  ck_assert_int_gt(divided, 100);
}
END_TEST

START_TEST(there_are_no_more_parts_than_wanted) {
  int32_t counts[COLUMNS_MOST] = {0};
  seed_cases();
  for (int n = 0; n < 2000; n++) {
    const struct ft_columns columns = random_columns(counts);
    const int64_t most = random_int(0, 300);
    ck_assert_int_le(ft_walk_parts_of(&columns, random_int(1, 50), most).parts, most);
  }
}
END_TEST

/* Longformer's mask of 128 x 128 blocks at 16384 tokens: three diagonals and a global block. */
START_TEST(a_global_column_is_divided) {
  int32_t counts[128] = {128};
  for (int n = 1; n < 128; n++) counts[n] = 4;
  const struct ft_columns columns = {
      .counts = counts, .columns = 128, .tiles = 1, .steps_of_a_block = 2};
  const struct ft_walk_parts parts = ft_walk_parts_of(&columns, 32, 264);
  static const int32_t ends[FT_WALK_PARTS_CLASSES] = {0, 0, 0, 1, 1, 1};
  ck_assert_mem_eq(parts.ends, ends, sizeof ends);
  ck_assert_int_eq(parts.parts, 8);
  ck_assert_double_eq(ft_steps_of_columns(&columns), 2 * (128 + 127 * 4));
}
END_TEST

Suite *make_walk_parts_suite(void) {
  Suite *const suite = suite_create("walk_parts");
  TCase *const tests = tcase_create("parts");
  tcase_add_test(tests, walks_are_divided_by_their_lengths);
  tcase_add_test(tests, there_are_no_more_parts_than_wanted);
  tcase_add_test(tests, a_global_column_is_divided);
  suite_add_tcase(suite, tests);
  return suite;
}
