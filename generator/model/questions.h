/* questions.h: what many trees ask, each question once, and their sums from the answers.
 * in -> out: trees -> questions; questions + features of several configs -> sums.
 * Trees are made by comparing features with few numbers, so that one question is asked by many
 * trees. Where many configs are to be ranked it pays to list the questions first. Then each is
 * answered once for several configs, and a tree puts the answers together. */
#ifndef GENERATOR_QUESTIONS_H
#define GENERATOR_QUESTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/model/trees.h"

enum {
  FT_QUESTIONS_MOST = 2048,
  FT_QUESTIONED_TREES_MOST = 4096,
  FT_QUESTION_LANES = 16 /* configs whose sums are made at once */
};

struct ft_questions {
  const struct ft_trees *trees;
  int count;
  struct {
    float above;
    short feature; /* enum ft_feature */
  } list[FT_QUESTIONS_MOST];
  uint16_t of[FT_QUESTIONED_TREES_MOST][FT_TREE_DEPTH]; /* of each tree: where answers are */
};

/* false: there are too many trees or questions; ft_trees_sums is to be used. trees must outlive the
 * questions. */
bool ft_questions_list(struct ft_questions *questions, const struct ft_trees *trees);

/* The same sums as ft_trees_sums, of `count` configs, FT_QUESTION_LANES at most. */
void ft_questions_sums(const struct ft_questions *questions, const struct ft_features *features,
                       int count, double *sums);

#endif
