/* answers.h: what chosen rows of O and LSE must be, how far off a kernel may be, and the verdict.
 * in -> out: host problem + rows -> float64, allowances; a kernel's rows -> struct ft_comparison.
 */
#ifndef TUNER_ANSWERS_H
#define TUNER_ANSWERS_H

#include "tuner/verify/comparison.h"

/* What chosen rows of a problem must give; computed once, compared with many times. */
struct ft_answers;

/* Computes each row in float64 and plainly, by `threads` threads. problem and rows may be freed
 * afterwards. */
int ft_answers_make(struct ft_answers **answers, const struct ft_host_problem *problem,
                    const struct ft_row *rows, int row_count, int threads);
void ft_answers_free(struct ft_answers *answers);

/* o: elements [row][head_dim_v]; lse: float [row], or NULL. */
void ft_answers_compare(const struct ft_answers *answers, const void *o, const float *lse,
                        struct ft_comparison *comparison);

/* The verdict on row `index` alone, by the same allowances. */
struct ft_row_verdict {
  double o_ratio; /* of the worst element, which is in this column: */
  double o, o_expected;
  int column;
  double o_square; /* squared error */
  double lse_ratio, lse_error, lse_allowed;
  double lse, lse_expected;
};
void ft_answers_row(const struct ft_answers *answers, int index, const void *o, const float *lse,
                    struct ft_row_verdict *verdict);
/* Whether this one element of a row is right. */
bool ft_answers_element(const struct ft_answers *answers, int index, int column, const void *o);

/* ft_answers_make, ft_answers_compare and ft_answers_free in one. */
int ft_reference_compare(struct ft_comparison *comparison, const struct ft_host_problem *problem,
                         const struct ft_row *rows, int row_count, const void *o, const float *lse,
                         int threads);

#endif
