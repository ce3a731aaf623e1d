/* cuda_ranges.h: between which values an expression lies, as CUDA C.
 * in -> out: node -> a function of the ranges of what it takes from queries and keys. The functions
 * used are those of templates/parts/score_ranges.cu.in. */
#ifndef GENERATOR_SCORE_CUDA_RANGES_H
#define GENERATOR_SCORE_CUDA_RANGES_H

#include "generator/score/cuda_value.h"

/* How many integers and bools a function takes of a query, of a key. */
struct ft_range_values {
  int of_row, of_column;
};

/* Of a root that is a bool:
 *   ROW_VALUES, COLUMN_VALUES  how many integers and bools of a ScoreRow, of a ScoreColumn it takes
 *   void values_of(values, row), void values_of(values, column)  these
 *   Range ROOT_between(score, head, row, column)  by their ranges over some queries and some keys
 * Floats are not bounded: how a kernel rounds them is the compiler's choice. */
struct ft_range_values ft_cuda_write_ranges(struct ft_cuda *cuda, int root, const char *name);

#endif
