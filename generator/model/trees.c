/* trees.c: the sums of boosted trees.
 * in -> out: features of several configs -> the logarithm of a factor on each one's prediction. */
#include "generator/model/trees.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* For each question the answers of all configs: 1 for yes, 0 for no. */
struct answers {
  alignas(FT_TREE_LANES) uint8_t of[FT_TREE_QUESTIONS_MOST][FT_TREE_LANES];
};

static void answer(const struct ft_trees *trees, const struct ft_features *features, int count,
                   struct answers *answers) {
  float lanes[FT_FEATURES][FT_TREE_LANES];
  memset(lanes, 0, sizeof lanes);
  for (int lane = 0; lane < count; lane++)
    for (int f = 0; f < FT_FEATURES; f++) lanes[f][lane] = features[lane].of[f];
  for (int n = 0; n < trees->question_count; n++) {
    const float *const of = lanes[trees->questions[n].feature];
    const float above = trees->questions[n].above;
    for (int lane = 0; lane < FT_TREE_LANES; lane++) answers->of[n][lane] = of[lane] > above;
  }
}

/* Adds the leaves of the trees from number `first` on to the sums of the first `count` configs. */
static void sum_plainly(const struct ft_trees *trees, int first, const struct answers *answers,
                        int count, int32_t *sum) {
  static_assert(FT_TREE_DEPTH == 6, "as many answers as are put together here");
  for (int tree = first; tree < trees->count; tree++) {
    const uint8_t *of[FT_TREE_DEPTH];
    uint8_t leaf[FT_TREE_LANES];
    for (int n = 0; n < FT_TREE_DEPTH; n++) of[n] = answers->of[trees->asked[tree][n]];
    for (int lane = 0; lane < FT_TREE_LANES; lane++)
      leaf[lane] = (uint8_t)(32 * of[0][lane] + 16 * of[1][lane] + 8 * of[2][lane] +
                             4 * of[3][lane] + 2 * of[4][lane] + of[5][lane]);
    for (int lane = 0; lane < count; lane++)
      sum[lane] += trees->scales[tree] * trees->leaves[tree][leaf[lane]];
  }
}

#ifdef __x86_64__
/* With AVX2. Leaves of two trees are looked up at a time, one tree in each half of a register. A
 * shuffle looks up one of 16 bytes for each of 16 lanes. So the 64 leaves of a tree are four tables
 * of 16 bytes. */
#define OF_AVX2 __attribute__((target("avx2")))

OF_AVX2 static inline __m256i load_both(const void *a, const void *b) {
  const __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a));
  return _mm256_inserti128_si256(low, _mm_loadu_si128((const __m128i *)b), 1);
}

OF_AVX2 static inline __m256i leaves_of_both(const struct ft_trees *trees, int a, int b,
                                             const struct answers *answers) {
  enum { TABLE = 16, NO_PLACE = 0x80 }; /* a place with this bit gives 0 */
  static_assert((int)FT_TREE_LANES == TABLE && 1 << FT_TREE_DEPTH == 4 * TABLE, "four tables");
  __m256i number = _mm256_setzero_si256(), leaves = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int n = 0; n < FT_TREE_DEPTH; n++) {
    const __m256i answer =
        load_both(answers->of[trees->asked[a][n]], answers->of[trees->asked[b][n]]);
    number = _mm256_add_epi8(_mm256_add_epi8(number, number), answer);
  }
#pragma GCC unroll 4
  for (int n = 0; n < 4; n++) {
    const __m256i here = _mm256_xor_si256(number, _mm256_set1_epi8((char)(n * TABLE)));
    const __m256i place = _mm256_add_epi8(here, _mm256_set1_epi8((char)(NO_PLACE - TABLE)));
    const __m256i tables = load_both(trees->leaves[a] + n * TABLE, trees->leaves[b] + n * TABLE);
    leaves = _mm256_or_si256(leaves, _mm256_shuffle_epi8(tables, place));
  }
  return leaves;
}

/* The scales of four trees. Each 32 bits of the lower half hold those of trees 0 and 2, of the
 * upper half those of trees 1 and 3. */
OF_AVX2 static inline __m256i scales_of(const int16_t *scales) {
  const int low = (uint16_t)scales[0] | (int)((uint32_t)(uint16_t)scales[2] << 16);
  const int high = (uint16_t)scales[1] | (int)((uint32_t)(uint16_t)scales[3] << 16);
  return _mm256_inserti128_si256(_mm256_set1_epi32(low), _mm_set1_epi32(high), 1);
}

/* The leaves of the first or the last eight lanes of each half, widened to 16 bits. */
OF_AVX2 static inline __m256i widened(__m256i leaves, bool upper) {
  const __m256i twice =
      upper ? _mm256_unpackhi_epi8(leaves, leaves) : _mm256_unpacklo_epi8(leaves, leaves);
  return _mm256_srai_epi16(twice, 8);
}

/* Adds four trees at a time. A multiply-add multiplies the leaves of two trees by their scales and
 * adds the two products. */
OF_AVX2 static void sum_by_tables(const struct ft_trees *trees, const struct answers *answers,
                                  int count, int32_t *sum) {
  enum { AT_ONCE = 4 };
  const int rest = trees->count / AT_ONCE * AT_ONCE;
  __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                     _mm256_setzero_si256()};
  for (int tree = 0; tree < rest; tree += AT_ONCE) {
    const __m256i a = leaves_of_both(trees, tree, tree + 1, answers);
    const __m256i b = leaves_of_both(trees, tree + 2, tree + 3, answers);
    const __m256i scales = scales_of(trees->scales + tree);
#pragma GCC unroll 2
    for (int upper = 0; upper < 2; upper++) {
      const __m256i of_a = widened(a, upper), of_b = widened(b, upper);
      const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(of_a, of_b), scales);
      const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(of_a, of_b), scales);
      sums[2 * upper] = _mm256_add_epi32(sums[2 * upper], low);
      sums[2 * upper + 1] = _mm256_add_epi32(sums[2 * upper + 1], high);
    }
  }
  for (int n = 0; n < 4; n++) { /* of the trees in both halves */
    const __m128i both =
        _mm_add_epi32(_mm256_castsi256_si128(sums[n]), _mm256_extracti128_si256(sums[n], 1));
    _mm_storeu_si128((__m128i *)(sum + 4 * n), both);
  }
  sum_plainly(trees, rest, answers, count, sum);
}
#endif

static void sum_all_plainly(const struct ft_trees *trees, const struct answers *answers, int count,
                            int32_t *sum) {
  sum_plainly(trees, 0, answers, count, sum);
}

typedef void adder(const struct ft_trees *trees, const struct answers *answers, int count,
                   int32_t *sum);

static void sums_by(adder *add, const struct ft_trees *trees, const struct ft_features *features,
                    int count, double *sums) {
  int32_t sum[FT_TREE_LANES] = {0};
  struct answers answers;
  memset(answers.of[0], 0, sizeof answers.of[0]); /* there may be no question */
  answer(trees, features, count, &answers);
  add(trees, &answers, count, sum);
  for (int lane = 0; lane < count; lane++) sums[lane] = (double)sum[lane] / FT_TREE_UNIT;
}

void ft_trees_plain_sums(const struct ft_trees *trees, const struct ft_features *features,
                         int count, double *sums) {
  sums_by(sum_all_plainly, trees, features, count, sums);
}

void ft_trees_sums(const struct ft_trees *trees, const struct ft_features *features, int count,
                   double *sums) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) {
    sums_by(sum_by_tables, trees, features, count, sums);
    return;
  }
#endif
  ft_trees_plain_sums(trees, features, count, sums);
}
