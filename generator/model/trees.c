/* trees.c: the sums of boosted trees.
 * in -> out: features of several configs -> the logarithm of a factor on each one's prediction. */
#include "generator/model/trees.h"

#include <stdint.h>

void ft_trees_sums(const struct ft_trees *trees, const struct ft_feature_lanes *features,
                   double sums[FT_TREE_LANES]) {
  int32_t sum[FT_TREE_LANES] = {0};
  for (int n = 0; n < trees->count; n++) {
    const struct ft_tree *const tree = &trees->list[n];
    int32_t leaf[FT_TREE_LANES] = {0};
    for (int i = 0; i < FT_TREE_DEPTH; i++) {
      const float *const of = features->of[tree->splits[i].feature];
      const float above = tree->splits[i].above;
      for (int lane = 0; lane < FT_TREE_LANES; lane++)
        leaf[lane] = 2 * leaf[lane] + (of[lane] > above);
    }
    for (int lane = 0; lane < FT_TREE_LANES; lane++) sum[lane] += tree->leaves[leaf[lane]];
  }
  for (int lane = 0; lane < FT_TREE_LANES; lane++) sums[lane] = (double)sum[lane] / FT_TREE_UNIT;
}
