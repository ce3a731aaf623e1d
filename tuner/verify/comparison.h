/* comparison.h: the verdict over a result. */
#ifndef TUNER_COMPARISON_H
#define TUNER_COMPARISON_H

#include "tuner/verify/reference.h"

/* The verdict over the outputs of some rows. error_ratio is the largest of three quotients error /
 * allowance; the outputs are right if it is at most 1. The three are O in relative L2 over all
 * rows; O in its largest element, each row measured by its own largest |value|; LSE in its largest
 * element. It is infinite for NaN, and for a row that should be exactly 0 and -inf, because it sees
 * no key, and is not, or the other way round. */
struct ft_comparison {
  double error_ratio;
  double o_error, o_allowed;     /* relative L2 */
  double lse_error, lse_allowed; /* of the worst row, absolute; 0 without LSE */
  char worst[160];               /* what made the ratio, and where */
  struct ft_row row; /* the worst row, and its worst column of O, or one of the two below */
  int column;
  bool damaged; /* a fence or a gap was written, or an element was not: no value was compared */
  struct {
    double error, allowed;
  } gradients[3]; /* of dQ, dK, dV: relative L2 (gradients.h) */
};
enum { FT_COLUMN_LSE = -1, FT_COLUMN_NONE = -2 /* the fault is in no row */ };

#endif
