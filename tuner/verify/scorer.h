/* scorer.h: what the score function of a problem makes of the scores of a row, in float64.
 * in -> out: row, key, scale q . k -> score, whether the key is visible, d score / ds. Without a
 * score function all is the identity. */
#ifndef TUNER_SCORER_H
#define TUNER_SCORER_H

#include "generator/score/ties.h"
#include "tuner/verify/host_problem.h"

struct ft_scorer {
  const struct ft_host_problem *problem;
  const struct ft_known_score *known; /* NULL: there is none */
  struct ft_interpreter interpreter;
  struct ft_score_inputs inputs;
  double *errors; /* of each node, where kernels compute the score in fp32 (rounding.h); owned */
  struct ft_ties ties;
};

int ft_scorer_open(struct ft_scorer *scorer, const struct ft_host_problem *problem);
void ft_scorer_close(struct ft_scorer *scorer);

/* Of the row are the keys that follow. */
void ft_scorer_enter(struct ft_scorer *scorer, struct ft_row row);

struct ft_scored {
  double score, slope; /* the slope of a backward alone */
  double rounding;     /* of fp32: what the score errs by as the function is computed; else 0 */
  bool visible;        /* a score of -inf hides its key, too */
};
struct ft_scored ft_scorer_key(struct ft_scorer *scorer, int64_t j, double s);

/* Whether the function compares floats or takes their floor: only then it can have ties (ties.h).
 */
static inline bool ft_scorer_decides(const struct ft_scorer *scorer) {
  return scorer->ties.decision_count > 0;
}
/* A key with s, and with the s of a plain computation, which decides ties in the same way; of_s:
 * what a kernel's s errs by. The scorer is left at the former. */
struct ft_scored ft_scorer_both(struct ft_scorer *scorer, int64_t j, double s, double plain_s,
                                double of_s, struct ft_scored *plain);
/* After ft_scorer_both: in how many other ways the key's ties may be decided. */
int ft_scorer_others(const struct ft_scorer *scorer);
/* The key with its ties decided in the n-th of these ways, 1 to ft_scorer_others; 0: as float64
 * decides them. The scorer is left there. */
struct ft_scored ft_scorer_other(struct ft_scorer *scorer, int n);

/* After a key: the n-th other derivative of the score, and the place of its leaf in the gradient,
 * which is dense and has one element along a dimension that is broadcast. */
double ft_scorer_derivative(const struct ft_scorer *scorer, int n);
int64_t ft_scorer_place(const struct ft_scorer *scorer, int n);
/* How many elements such a gradient has, by the bit of the request's score_gradients. */
int64_t ft_gradient_count(const struct ft_known_score *known, const struct ft_score_inputs *inputs,
                          int bit);
/* The bit of what the n-th other derivative is by. */
int ft_derivative_bit(const struct ft_known_score *known, int n);

#endif
