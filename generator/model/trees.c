/* trees.c: the sums of boosted trees.
 * in -> out: features of several configs -> the logarithm of a factor on each one's prediction. */
#include "generator/model/trees.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

enum { TREES_AT_ONCE = 8 }; /* their leaves are added in registers */
#define EVERYWHERE static inline __attribute__((always_inline))

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

EVERYWHERE const uint8_t *answers_to(const struct answers *answers, uint16_t question) {
  return __builtin_assume_aligned(answers->of[question], FT_TREE_LANES);
}

EVERYWHERE void find_leaves(const struct answers *answers, const uint16_t *asked, uint8_t *leaf) {
  static_assert(FT_TREE_DEPTH == 6, "as many answers as are put together here");
  const uint8_t *const a = answers_to(answers, asked[0]), *const b = answers_to(answers, asked[1]),
                       *const c = answers_to(answers, asked[2]),
                       *const d = answers_to(answers, asked[3]),
                       *const e = answers_to(answers, asked[4]),
                       *const f = answers_to(answers, asked[5]);
  for (int lane = 0; lane < FT_TREE_LANES; lane++)
    leaf[lane] =
        (uint8_t)(32 * a[lane] + 16 * b[lane] + 8 * c[lane] + 4 * d[lane] + 2 * e[lane] + f[lane]);
}

/* Adds the leaves of `trees` trees, which is a constant. */
EVERYWHERE void add_leaves(const struct ft_tree *tree, int trees, const struct answers *answers,
                           int count, int32_t *sum) {
  uint8_t leaf[TREES_AT_ONCE][FT_TREE_LANES];
  for (int n = 0; n < trees; n++) find_leaves(answers, tree[n].asked, leaf[n]);
  for (int lane = 0; lane < count; lane++) {
    int32_t of_lane = 0;
#pragma GCC unroll 8
    for (int n = 0; n < trees; n++) of_lane += tree[n].leaves[leaf[n][lane]];
    sum[lane] += of_lane;
  }
}

void ft_trees_sums(const struct ft_trees *trees, const struct ft_features *features, int count,
                   double *sums) {
  const int whole = trees->count - trees->count % TREES_AT_ONCE;
  int32_t sum[FT_TREE_LANES] = {0};
  struct answers answers;
  answer(trees, features, count, &answers);
  for (int n = 0; n < whole; n += TREES_AT_ONCE)
    add_leaves(&trees->list[n], TREES_AT_ONCE, &answers, count, sum);
  for (int n = whole; n < trees->count; n++) add_leaves(&trees->list[n], 1, &answers, count, sum);
  for (int lane = 0; lane < count; lane++) sums[lane] = (double)sum[lane] / FT_TREE_UNIT;
}
