/* captured_answers.h: what the gradients of captured things must be, and the verdict.
 * in -> out: host problem -> float64 sums, allowances; a kernel's gradient -> struct ft_comparison.
 */
#ifndef TUNER_CAPTURED_ANSWERS_H
#define TUNER_CAPTURED_ANSWERS_H

#include "tuner/verify/comparison.h"
#include "tuner/verify/gradients.h"

/* Of one captured thing: a sum over all rows and keys for each element. */
struct ft_captured_answer {
  int64_t count;
  double *exact, *plain;
  double *ties;   /* how far ties may move it (gradients.h) */
  double *square; /* of the yardstick: the sum of squares if nothing cancelled */
};

/* By the bit of the request's score_gradients. */
struct ft_captured_answers {
  struct ft_captured_answer of[FT_GRADIENTS_MOST];
};

/* Takes time in proportion to queries times keys. */
int ft_captured_answers_make(struct ft_captured_answers **answers,
                             const struct ft_host_problem *problem);
void ft_captured_answers_free(struct ft_captured_answers *answers);

/* The verdict becomes that over a gradient as a kernel left it where that is worse. */
void ft_captured_answers_compare(const struct ft_captured_answers *answers,
                                 const struct ft_host_problem *problem, int bit,
                                 const float *values, struct ft_comparison *comparison);

#endif
