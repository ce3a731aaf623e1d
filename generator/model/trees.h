/* trees.h: boosted trees as data, and their sums.
 * in -> out: features of several configs -> the logarithm of a factor on each one's prediction.
 * A tree asks the same six questions of every config. So its leaf is found without a branch, and
 * vector instructions find the leaves of several configs at once. */
#ifndef GENERATOR_TREES_H
#define GENERATOR_TREES_H

#include "generator/model/features.h"

enum {
  FT_TREE_DEPTH = 6,
  FT_TREE_UNIT = 8192, /* what a leaf of 1 counts as */
  FT_TREE_LANES = 8    /* configs whose sums are made at once */
};

struct ft_tree {
  struct __attribute__((packed)) { /* there are 48,000, and no one takes an address of them */
    short feature;                 /* enum ft_feature */
    float above;
  } splits[FT_TREE_DEPTH];
  short leaves[1 << FT_TREE_DEPTH]; /* the answer to the first question is the highest bit */
};

struct ft_trees {
  const struct ft_tree *list;
  int count;
};

/* A config each. */
struct ft_feature_lanes {
  float of[FT_FEATURES][FT_TREE_LANES];
};

void ft_trees_sums(const struct ft_trees *trees, const struct ft_feature_lanes *features,
                   double sums[FT_TREE_LANES]);

#endif
