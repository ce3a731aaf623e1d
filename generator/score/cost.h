/* cost.h: what a score costs a kernel, counted in its expressions.
 * in -> out: nodes -> instructions, special functions, reads of an element.
 *
 * An element is a query and a key. What is computed for a key is shared by the two rows that a lane
 * has, so it counts half; what is computed for a query or a head is not done in every step and
 * costs nothing here. */
#ifndef GENERATOR_SCORE_COST_H
#define GENERATOR_SCORE_COST_H

#include "generator/score/expression.h"

struct ft_score_cost {
  double instructions; /* all that are issued */
  double special;      /* of them those of the unit of special functions, and conversions */
  double reads;        /* of captured tensors */
};

/* By what a kernel does with a score. */
struct ft_score_costs {
  struct ft_score_cost exponent; /* of the forward by wgmma, beyond that of q . k alone */
  struct ft_score_cost score;    /* as it stands */
  struct ft_score_cost slope;    /* the score and its slope */
  struct ft_score_cost visible;  /* what hides keys */
};

/* Of what the roots, which have been lowered, are made of; what they share counts once. */
struct ft_score_cost ft_score_cost_of(const struct ft_expression *expression, const int *roots,
                                      int count);

#endif
