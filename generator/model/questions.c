/* questions.c: what many trees ask, each question once, and their sums from the answers.
 * in -> out: trees -> questions; questions + features of several configs -> sums. */
#include "generator/model/questions.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

/* ---- the list ---- */

enum { PLACE_BITS = 12, PLACES = 1 << PLACE_BITS };
static_assert(PLACES >= 2 * FT_QUESTIONS_MOST, "half of the places stay free");

/* By a hash of the question: 1 + its number; 0: free. */
struct places {
  uint16_t of[PLACES];
};

static unsigned place_of(short feature, float above) {
  uint32_t bits;
  memcpy(&bits, &above, sizeof bits);
  const uint32_t mixed = (bits ^ (uint32_t)feature * 0x9E3779B1u) * 0x85EBCA6Bu;
  return mixed >> (32 - PLACE_BITS);
}

/* The number of a question, which is added to the list if it is new there; below 0: the list is
 * full. */
static int number_of(struct ft_questions *questions, struct places *places, short feature,
                     float above) {
  unsigned place = place_of(feature, above);
  for (; places->of[place] != 0; place = (place + 1) % PLACES) {
    const int number = places->of[place] - 1;
    if (questions->list[number].feature == feature && questions->list[number].above == above)
      return number;
  }
  if (questions->count == FT_QUESTIONS_MOST) return -1;
  const int number = questions->count++;
  questions->list[number].feature = feature;
  questions->list[number].above = above;
  places->of[place] = (uint16_t)(number + 1);
  return number;
}

bool ft_questions_list(struct ft_questions *questions, const struct ft_trees *trees) {
  struct places places = {{0}};
  questions->trees = trees;
  questions->count = 0;
  if (trees->count > FT_QUESTIONED_TREES_MOST) return false;
  for (int n = 0; n < trees->count; n++) {
    const struct ft_tree *const tree = &trees->list[n];
    for (int i = 0; i < FT_TREE_DEPTH; i++) {
      const int number =
          number_of(questions, &places, tree->splits[i].feature, tree->splits[i].above);
      if (number < 0) return false;
      questions->of[n][i] = (uint16_t)(number * FT_QUESTION_LANES);
    }
  }
  return true;
}

/* ---- the sums ---- */

enum { TREES_AT_ONCE = 8 }; /* their leaves are added in registers */
#define EVERYWHERE static inline __attribute__((always_inline))

/* To each question 0 or 1 of each config, one after the other. */
struct answers {
  alignas(FT_QUESTION_LANES) uint8_t of[FT_QUESTIONS_MOST * FT_QUESTION_LANES];
};
static_assert(sizeof(struct answers) <= UINT16_MAX + 1, "struct ft_questions has places of them");

static void answer(const struct ft_questions *questions, const struct ft_features *features,
                   int count, struct answers *answers) {
  float lanes[FT_FEATURES][FT_QUESTION_LANES];
  memset(lanes, 0, sizeof lanes);
  for (int lane = 0; lane < count; lane++)
    for (int f = 0; f < FT_FEATURES; f++) lanes[f][lane] = features[lane].of[f];
  for (int n = 0; n < questions->count; n++) {
    const float *const of = lanes[questions->list[n].feature];
    const float above = questions->list[n].above;
    uint8_t *const own = answers->of + n * FT_QUESTION_LANES;
    for (int lane = 0; lane < FT_QUESTION_LANES; lane++) own[lane] = of[lane] > above;
  }
}

EVERYWHERE const uint8_t *answers_at(const struct answers *answers, uint16_t place) {
  return __builtin_assume_aligned(answers->of + place, FT_QUESTION_LANES);
}

/* The answer to the first question is the highest bit of a leaf's number. */
EVERYWHERE void find_leaves(const struct answers *answers, const uint16_t *asked, uint8_t *leaf) {
  static_assert(FT_TREE_DEPTH == 6, "as many answers as are put together here");
  const uint8_t *const a = answers_at(answers, asked[0]), *const b = answers_at(answers, asked[1]),
                       *const c = answers_at(answers, asked[2]),
                       *const d = answers_at(answers, asked[3]),
                       *const e = answers_at(answers, asked[4]),
                       *const f = answers_at(answers, asked[5]);
  for (int lane = 0; lane < FT_QUESTION_LANES; lane++)
    leaf[lane] =
        (uint8_t)(32 * a[lane] + 16 * b[lane] + 8 * c[lane] + 4 * d[lane] + 2 * e[lane] + f[lane]);
}

/* Adds the leaves of `trees` trees, which is a constant, from number `first` on. */
EVERYWHERE void add_leaves(const struct ft_questions *questions, const struct answers *answers,
                           int first, int trees, int count, int32_t *sum) {
  const struct ft_tree *const tree = &questions->trees->list[first];
  uint8_t leaf[TREES_AT_ONCE][FT_QUESTION_LANES];
  for (int n = 0; n < trees; n++) find_leaves(answers, questions->of[first + n], leaf[n]);
  for (int lane = 0; lane < count; lane++) {
    int32_t of_lane = 0;
#pragma GCC unroll 8
    for (int n = 0; n < trees; n++) of_lane += tree[n].leaves[leaf[n][lane]];
    sum[lane] += of_lane;
  }
}

void ft_questions_sums(const struct ft_questions *questions, const struct ft_features *features,
                       int count, double *sums) {
  const int trees = questions->trees->count, whole = trees - trees % TREES_AT_ONCE;
  int32_t sum[FT_QUESTION_LANES] = {0};
  struct answers answers;
  answer(questions, features, count, &answers);
  for (int n = 0; n < whole; n += TREES_AT_ONCE)
    add_leaves(questions, &answers, n, TREES_AT_ONCE, count, sum);
  for (int n = whole; n < trees; n++) add_leaves(questions, &answers, n, 1, count, sum);
  for (int lane = 0; lane < count; lane++) sums[lane] = (double)sum[lane] / FT_TREE_UNIT;
}
