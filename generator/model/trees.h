/* trees.h: boosted trees as data, and their sums.
 * in -> out: features of several configs -> the logarithm of a factor on each one's prediction.
 * A tree asks the same six questions of every config, and a question is asked by many trees. So
 * each question is answered once for several configs, and a tree puts answers together to the
 * number of its leaf, without a branch. */
#ifndef GENERATOR_TREES_H
#define GENERATOR_TREES_H

#include <stdint.h>

#include "generator/model/features.h"

enum {
  FT_TREE_DEPTH = 6,
  FT_TREE_UNIT = 1 << 22, /* what a sum of 1 counts as */
  FT_TREE_LANES = 16,     /* configs whose sums are made at once */
  FT_TREE_QUESTIONS_MOST = 4096
};

/* Whether a feature is above a number. */
struct ft_tree_question {
  float above;
  short feature; /* enum ft_feature */
};

typedef uint16_t ft_tree_asked[FT_TREE_DEPTH];     /* numbers of questions */
typedef int8_t ft_tree_leaves[1 << FT_TREE_DEPTH]; /* the first answer is the highest bit */

struct ft_trees {
  const struct ft_tree_question *questions;
  /* Of each tree: */
  const ft_tree_asked *asked;
  const int16_t *scales; /* what a leaf of 1 adds to the sum */
  const ft_tree_leaves *leaves;
  int question_count, count;
};

/* The sums of `count` configs, at most FT_TREE_LANES. That many take hardly longer than one. */
void ft_trees_sums(const struct ft_trees *trees, const struct ft_features *features, int count,
                   double *sums);

/* The same sums, by what every processor has. */
void ft_trees_plain_sums(const struct ft_trees *trees, const struct ft_features *features,
                         int count, double *sums);

#endif
