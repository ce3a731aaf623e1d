/* test_dropout.c: the dropout mask on the CPU, to which the kernels agree bit for bit.
 * in -> out: published vectors, the definition by hand, ranks over GF(2), shares -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/fresh_seed.h"
#include "tuner/verify/philox.h"

/* kat_vectors of Random123, philox 4x32 10. */
START_TEST(philox_known_answers) {
  static const uint32_t vectors[3][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
       0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
       0x94fdcceb, 0x5001e420, 0x24126ea1},
  };
  for (int n = 0; n < 3; n++) {
    uint32_t words[4];
    ft_philox(vectors[n], vectors[n] + 4, words);
    for (int w = 0; w < 4; w++) ck_assert_uint_eq(words[w], vectors[n][6 + w]);
  }
}
END_TEST

/* The words of one draw by hand: which element takes which 16 bits is a contract with the kernels.
 */
START_TEST(dropout_takes_the_agreed_bits) {
  const uint64_t seed = 0x0123456789ABCDEFu, offset = 0xFEDCBA9876543210u;
  for (int i = 0; i < 70; i++) {
    for (int j = 0; j < 140; j++) {
      const uint32_t counter[4] = {0x76543210u, (uint32_t)(j / 64 * 4 + j % 8 / 2), 3 * 5 + 2,
                                   (uint32_t)(i / 32 * 8 + i % 8)};
      const uint32_t key[2] = {0x89ABCDEFu, 0x01234567u ^ 0xFEDCBA98u};
      uint32_t words[4];
      ft_philox(counter, key, words);
      const int w = (i / 8 % 2) + 2 * (j / 8 % 2), shift = j % 2 * 16;
      const int right = j / 16 % 4, below = i / 16 % 2;
      unsigned u = 0; /* bit by bit: bit b of a word turned right by n is bit b + n of the word */
      for (int b = 0; b < 14; b++) {
        unsigned bit = words[w] >> (b + shift) & 1;
        if (below == 0 && right != 0) bit ^= words[(w + right) % 4] >> (b + shift + 8) % 32 & 1;
        if (below == 1 && right != 0) bit ^= words[(w + right) % 4] >> (b + shift + 20) % 32 & 1;
        if (below == 1 && right == 0)
          bit ^= (words[(w + 1) % 4] >> (b + shift + 8) % 32 & 1) ^
                 (words[(w + 2) % 4] >> (b + shift + 20) % 32 & 1);
        u |= bit << b;
      }
      ck_assert(!ft_dropout_keeps(seed, offset, 3, 5, 2, i, j, u + 1));
      ck_assert(ft_dropout_keeps(seed, offset, 3, 5, 2, i, j, u));
    }
  }
}
END_TEST

/* A bit of an element as a linear function of the 128 drawn bits: which of them it is the sum of.
 */
struct mask128 {
  uint64_t low, high;
};

static void element_masks(int element, struct mask128 masks[14]) {
  const int w = element % 4, fragment = element / 4 % 8, shift = element / 32 * 16;
  memset(masks, 0, 14 * sizeof *masks);
  for (int bit = 0; bit < 128; bit++) {
    uint32_t words[4] = {0};
    words[bit / 32] = 1u << bit % 32;
    const uint32_t word = ft_dropout_word(words, w, fragment) >> shift;
    for (int b = 0; b < 14; b++) {
      if (!(word >> b & 1)) continue;
      if (bit < 64) masks[b].low |= UINT64_C(1) << bit;
      if (bit >= 64) masks[b].high |= UINT64_C(1) << (bit - 64);
    }
  }
}

/* Rank over GF(2) of `count` masks, which are changed. */
static int rank_of(struct mask128 *masks, int count) {
  int rank = 0;
  for (int bit = 0; bit < 128 && rank < count; bit++) {
    const uint64_t low = bit < 64 ? UINT64_C(1) << bit : 0;
    const uint64_t high = bit < 64 ? 0 : UINT64_C(1) << (bit - 64);
    int pivot = rank;
    while (pivot < count && !(masks[pivot].low & low) && !(masks[pivot].high & high)) pivot++;
    if (pivot == count) continue;
    const struct mask128 row = masks[pivot];
    masks[pivot] = masks[rank];
    masks[rank++] = row;
    for (int n = rank; n < count; n++) {
      if (!(masks[n].low & low) && !(masks[n].high & high)) continue;
      masks[n].low ^= row.low;
      masks[n].high ^= row.high;
    }
  }
  return rank;
}

/* 28 independent bits decide about any two of the 64 elements of a draw, so they are independent.
 */
START_TEST(any_two_elements_of_a_draw_are_independent) {
  for (int a = 0; a < 64; a++) {
    for (int b = 0; b < a; b++) {
      struct mask128 masks[28];
      element_masks(a, masks);
      element_masks(b, masks + 14);
      ck_assert_msg(rank_of(masks, 28) == 28, "elements %d and %d", a, b);
    }
  }
}
END_TEST

START_TEST(dropout_share_is_the_probability) {
  static const double probabilities[] = {0, 0.1, 0.5, 0.9, 1};
  const double p = probabilities[_i];
  const uint32_t threshold = ft_dropout_threshold(p);
  const uint64_t seed = fresh_seed();
  const int size = 400;
  int dropped = 0;
  for (int i = 0; i < size; i++) {
    for (int j = 0; j < size; j++) dropped += !ft_dropout_keeps(seed, 7, 0, 4, 1, i, j, threshold);
  }
  const double n = (double)size * size, exact = threshold / 16384.0;
  ck_assert_double_eq_tol(exact, p, 0x1p-15);
  ck_assert_msg(fabs(dropped - n * exact) <= 5 * sqrt(n * exact * (1 - exact)),
                "seed %llu: %d of %.0f", (unsigned long long)seed, dropped, n);
}
END_TEST

Suite *make_dropout_suite(void) {
  Suite *suite = suite_create("dropout");
  TCase *tests = tcase_create("mask");
  tcase_add_test(tests, philox_known_answers);
  tcase_add_test(tests, dropout_takes_the_agreed_bits);
  tcase_add_test(tests, any_two_elements_of_a_draw_are_independent);
  tcase_add_loop_test(tests, dropout_share_is_the_probability, 0, 5);
  suite_add_tcase(suite, tests);
  return suite;
}
