/* matrix_cases.h: the cross-product of features as requests, for a GPU and for the emulated one.
 * in -> out: index, size -> request, layout, mask, dropout (the same in every run); requests ->
 * how often each feature occurs. */
#ifndef TESTS_MATRIX_CASES_H
#define TESTS_MATRIX_CASES_H

#include "tuner/verify/problem_options.h"

enum { MATRIX_DIMS = 31, MATRIX_COMBINATIONS = 24, MATRIX_LAYOUTS = 3 };

/* How much work a request may be. */
struct matrix_size {
  int64_t longest;           /* of the lengths that are random; 385 of those at edges */
  int64_t rows, rows_seldom; /* queries of all heads, in most requests and in one of six */
  int64_t tile;              /* a head counts whole tiles of so many rows */
};

/* Combination (index % 24) of causal, dropout, mask and dtype, head dim number index % 31: the two
 * have no common divisor. The seed is left to the caller. */
void matrix_choose(struct ft_problem_options *options, int index, const struct matrix_size *size);
/* The same of the backward, one of four deterministic, with a gradient of LSE in every other one.
 */
void matrix_choose_backward(struct ft_problem_options *options, int index,
                            const struct matrix_size *size);

/* What is ragged becomes dense, in as many rows. */
void matrix_make_dense(struct ft_request *request);
/* The same in e4m3, without what that excludes and without a score; one in three as it was ragged
 * or paged, others dense, some of them with descales of blocks of rows. */
void matrix_make_e4m3(struct ft_problem_options *options, int index);

/* Counts over many requests. */
struct matrix_tally {
  int dims[MATRIX_DIMS], combinations[MATRIX_COMBINATIONS], layouts[MATRIX_LAYOUTS];
  int other_dim_v, mqa, gqa, one_query, one_key, blind_rows, empty_mask, full_mask, broadcast;
  int no_lse, own_scale, odd_mask, windows, sinks, ragged, pages;
  int deterministic, with_dlse; /* of the backward, which always has LSE */
};
void matrix_count(struct matrix_tally *tally, const struct ft_problem_options *options);

/* Fails the test where a count is less than this. */
struct matrix_least {
  enum ft_pass pass;
  int dim, combination, layout, feature;
};
void matrix_assert_covers(const struct matrix_tally *tally, const struct matrix_least *least);

#endif
