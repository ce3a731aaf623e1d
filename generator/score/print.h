/* print.h: expressions as Lua text.
 * in -> out: score -> text that reads as the same score; nodes by name -> assignments.
 * What is used more than once is printed once, as a local _1, _2, ... */
#ifndef GENERATOR_SCORE_PRINT_H
#define GENERATOR_SCORE_PRINT_H

#include "generator/score/score.h"

/* Declarations, score and visible: the canonical text. Scores are the same when their texts are. */
void ft_score_print(const struct ft_score *score, struct ft_text *text);

struct ft_named_node {
  const char *name;
  int node;
};

/* One expression, without locals. */
void ft_score_print_node(const struct ft_score *score, int node, struct ft_text *text);

/* "name = expression" for each. */
void ft_score_print_nodes(const struct ft_score *score, const struct ft_named_node *rows, int count,
                          struct ft_text *text);

#endif
