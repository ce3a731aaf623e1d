/* matrix_run.h: a matrix of requests on emulated GPUs, against float64.
 * in -> out: plan of a matrix, slice -> its runs; failures fail the test and are explained.
 * One case of two is run, chosen by the seed, of every combination of features; all of them with
 * FATUNE_TEST_SLOW=1. FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th
 * request alone; FATUNE_TEST_PART=1/2 the first of two halves. */
#ifndef TESTS_MATRIX_RUN_H
#define TESTS_MATRIX_RUN_H

#include "tests/matrix_cases.h"

enum { MATRIX_SLICES = 20 };

struct matrix_plan {
  int cases;
  int sanitized_share; /* under the sanitizers one of so many runs */
  struct matrix_size size;
  void (*choose)(struct ft_problem_options *options, int index, const struct matrix_size *size);
};

void matrix_run_slice(const struct matrix_plan *plan, int slice);

/* Every GPU gets so many cases with the default config, and with a random one. */
void matrix_check_cover(const struct matrix_plan *plan, const struct matrix_least *least,
                        int configs_least);
void matrix_check_spread(const struct matrix_plan *plan);

#endif
