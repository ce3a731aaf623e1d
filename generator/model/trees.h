/* trees.h: boosted trees as data, and their sum.
 * in -> out: features -> the logarithm of a factor on a prediction.
 * A tree asks the same few questions of every config, so its leaf is found without a branch. */
#ifndef GENERATOR_TREES_H
#define GENERATOR_TREES_H

#include "generator/model/features.h"

enum { FT_TREE_DEPTH = 6, FT_TREE_UNIT = 8192 }; /* the latter: what a leaf of 1 counts as */

struct ft_tree {
  struct {
    short feature; /* enum ft_feature */
    float above;
  } splits[FT_TREE_DEPTH];
  short leaves[1 << FT_TREE_DEPTH]; /* the answer to the first question is the highest bit */
};

struct ft_trees {
  const struct ft_tree *list;
  int count;
};

double ft_trees_sum(const struct ft_trees *trees, const struct ft_features *features);

#endif
