/* trees.c: the sum of boosted trees.
 * in -> out: features -> the logarithm of a factor on a prediction. */
#include "generator/model/trees.h"

double ft_trees_sum(const struct ft_trees *trees, const struct ft_features *features) {
  long sum = 0;
  for (int n = 0; n < trees->count; n++) {
    const struct ft_tree *const tree = &trees->list[n];
    unsigned leaf = 0;
    for (int i = 0; i < FT_TREE_DEPTH; i++)
      leaf = leaf << 1 | (features->of[tree->splits[i].feature] > tree->splits[i].above);
    sum += tree->leaves[leaf];
  }
  return (double)sum / FT_TREE_UNIT;
}
