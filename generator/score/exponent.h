/* exponent.h: a score as the exponent of 2 that the softmax takes, as a sum by levels.
 * in -> out: score -> nodes of log2(e) score - max.
 *
 * What does not contain s is added as the text has it. Products with what a head has are multiplied
 * out, so that an element takes one FFMA for q . k, and what is the same for a row is added once.
 */
#ifndef GENERATOR_SCORE_EXPONENT_H
#define GENERATOR_SCORE_EXPONENT_H

#include "generator/score/score.h"

struct ft_exponent {
  int general;
  /* The same where |x|, x = query - key, has the sign of x or of -x in a whole step, and the x of
   * the step's first key. */
  bool has_sides;
  int sided, first_x;
  bool x_grows; /* x grows from key to key, and does not fall */
  /* Such a score is q . k times a factor of the head and what is of the row and, times another
   * factor of the head, |x|, and from query to query x grows or falls by 1. */
  bool fades;
  /* Where there is a tanh or a sigmoid of s, and one only: its node, 1 / (1 + 2^-argument), and the
   * argument. */
  bool has_sigmoid;
  int sigmoid, argument;
  bool sigmoid_alone; /* of q . k times what a head has; all else is the same for a row in a step */
  bool reads_keys; /* `general` has what is of a key, and nothing without q . k of query and key */
  /* Whether `sided`, or else `general`, is a sum of q . k times key_unit, of what is the same for a
   * row in a step, and of what is of a key. What is of a key is key_term and, times the distance
   * from the step's first key, key_slope (of `sided`: sided_key_slope). Divided by key_unit, the
   * products can add it to q . k; what is left is `keyless` and `sided_keyless`. */
  bool adds_by_key;
  int keyless, sided_keyless, key_slope, sided_key_slope, key_term, key_unit;
  /* Found where CUDA C is made of it: */
  int tile; /* a read of a tile (ft_cuda_is_of_tile); 0: there is none */
  /* Its index of dimension tile_key is of the key alone, that of tile_row is the query itself, and
   * the others are the same for a head: TMA can load its rows. */
  bool tile_has_rows;
  int tile_key, tile_row;
  bool visible_reads_keys; /* the mask function reads of keys, densely, and reads nothing of both */
  bool reads_distances;    /* at an index of query and key that goes up or down by 1 with the key */
};

/* Adds nodes to the expression, which has been lowered. */
int ft_score_exponent(struct ft_score *score, int lowered_score, struct ft_exponent *exponent);

#endif
