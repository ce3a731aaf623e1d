/* cuda.h: expressions as CUDA C.
 * in -> out: score, its derivatives -> structs and functions, in fp32.
 *
 * A value is computed where it first can be: in score_head once for a head of a batch entry, in
 * score_row for a query, in score_column for a key, else in a function of an element. What those
 * before keep for those after are the fields of ScoreHead, ScoreRow and ScoreColumn. The functions
 * used are those of templates/parts/score_numbers.cu.in. */
#ifndef GENERATOR_SCORE_CUDA_H
#define GENERATOR_SCORE_CUDA_H

#include "generator/score/cuda_ranges.h"
#include "generator/score/derive.h"
#include "generator/score/exponent.h"
#include "generator/score/score.h"

/* Struct Score, the argument: each tensor as struct ft_arg_captured, then each scalar as 4 bytes,
 * in their order.
 *   float score_of(score, head, row, column, s)
 *   bool is_visible(score, head, row, column)
 *   float slope_of(score, head, row, column, s)  with derivatives: d score / d s
 * and of the N-th other derivative
 *   float derivative_N(score, head, row, column, s), long long place_N(...): d score / d leaf, and
 *   where in the leaf's gradient it belongs. Behind the scalars, from a multiple of 8 bytes on,
 *   struct Score has a Gradient (struct ft_arg_gradient) for each thing that one is by.
 * Unless exponent is NULL it is filled in, and there are
 *   float exponent_of(score, head, row, column, place), sided_exponent_of(...), first_x(...),
 *   sigmoid_argument(...), bool is_dense(score), is_inside(score, head, row, column), and for steps
 *   in which both hold
 *   ScoreColumn score_column_dense(...), float dense_exponent_of(...)
 * and with a tile its TileElement, const TileElement *tile_row(score, head, row, column), where the
 *   row's elements begin that are of this key and those after it, and tile_exponent_of(...), which
 *   takes the element as place.of_tile; where TMA can load its rows (tile_has_rows), can_be_mapped,
 *   last_tile_row, and of a step tile_key and tile_place_0 and _1, which with the query are the
 *   coordinates of its rows
 * where ScorePlace is that of parts/score_numbers.cu.in. Of a mask function that reads a
 * tensor by key (visible_reads_keys), besides:
 *   constexpr bool GOES_ONE_WAY: some of its conditions are monotonic along the keys, so that one
 *   key, the first or the last of a step, decides for all
 *   bool holds_of_keys(score, head, row, first, last): whether all of those hold for a step
 *   bool is_visible_one_way(score, head, row, column): whether those conditions hold for one key
 *   bool is_visible_besides(score, head, row, column): whether the other conditions hold for it
 *   bool rows_are_alike(upper, lower): whether the other conditions read the same values of all
 *   rows of a warp. upper and lower are the two rows of a lane
 * Adds nodes to the expression. */
int ft_score_emit(struct ft_score *score, const struct ft_derivatives *derivatives,
                  struct ft_exponent *exponent, struct ft_text *text);

/* Of the mask function alone: struct Score as without derivatives, is_visible, and
 *   Range visible_between(score, head, row, column)  and what it takes: cuda_ranges.h
 * for the kernels that make block masks. Adds nodes to the expression. */
int ft_score_emit_visible(struct ft_score *score, struct ft_text *text,
                          struct ft_range_values *values);

/* A captured tensor as kernels get it. */
struct ft_arg_captured {
  uint64_t data;
  int64_t stride[FT_SCORE_DIMS]; /* in elements */
  int32_t last[FT_SCORE_DIMS];   /* the largest index */
};

/* The gradient of a captured thing as kernels get it: dense, with one element along a dimension
 * that is broadcast. */
struct ft_arg_gradient {
  uint64_t data;  /* fp32; 0: it is not wanted */
  uint64_t words; /* of the workspace: 2 for each element and 2 before them; 0: not deterministic */
  int64_t count;
  int64_t stride[FT_SCORE_DIMS];
};

#endif
