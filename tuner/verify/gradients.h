/* gradients.h: the backward pass in float64 on the CPU, and the error a plain computation may make.
 * in -> out: host problem with O, LSE, dO, dLSE -> chosen rows of dQ, dK, dV; allowances; verdict.
 *
 *   P = exp(scale Q K^T - LSE)    Z = kept by dropout, over 1 - p    delta = rowsum(dO o O) - dLSE
 *   dV = (Z o P)^T dO    dS = P o (Z o (dO V^T) - delta)    dQ = scale dS K    dK = scale dS^T Q
 *
 * All of it is a function of what the kernel is given. That includes O and LSE as they were
 * rounded: what they have lost is no error of the backward. The plain computation has S, dO V^T,
 * delta and the sums in fp32. P is kept in the dtype, as PyTorch keeps it for its backward; dS is
 * rounded before it is multiplied, the gradients at the end; 1 / (1 - p) comes last in dV, as in O.
 *
 * dS is a difference of numbers that may be nearly equal (a query that sees one key has dS = 0). So
 * an error is measured not by the gradient but by its yardstick: the root of the sum of squares
 * that the gradient would have if nothing cancelled, with |dO| |V| + |dO| |O| + |dLSE| in place of
 * the difference. P and dS that are smaller than a normal number of the dtype count as one. Of
 * fp32, where P is not rounded to fewer bits than S has, large scores make it larger.
 *
 * The plain computation has the slope of a score in fp32. Kernels that make dS of P times the slope
 * (ft_score_weighs_p) also round the slope, and the product. So they round four times in a row, and
 * the plain computation twice. Where one query or key is nearly all of a row of the gradient, these
 * errors do not average out. So for such requests the plain computation is done both ways, with two
 * roundings and with four. Each element has the worse of its two errors.
 *
 * A program of tensors of the dtype rounds on the way from P to dS = P (Z o dP - delta) slope once
 * more: P times the slope, or P (Z o dP - delta) times each term of the slope. Where what is
 * rounded is a normal number, that is another rounding of a relative size. In fp16 P times the
 * slope may be subnormal although P and dS are normal numbers. Its rounding then errs by up to
 * 2^-25, and dS by up to 2^-25 |Z o dP - delta|. What that makes of a row of the gradient is its
 * `subnormal`.
 *
 * Where a score function compares what is equal but for the rounding of fp32, the derivative of
 * min, max, abs or a choice may as well be that of the other side, and P that of the other value
 * (generator/score/ties.h). By how much this may move a row, the sum of what it moves dS of each
 * key (of dV: P), is its `ties`. Keys that are no such case add nothing to it. */
#ifndef TUNER_GRADIENTS_H
#define TUNER_GRADIENTS_H

#include "tuner/verify/reference.h"

enum ft_gradient { FT_GRADIENT_Q, FT_GRADIENT_K, FT_GRADIENT_V, FT_GRADIENTS };

/* "dQ"; and what one of its rows belongs to: "row" (a query) or "key". */
const char *ft_gradient_name(enum ft_gradient gradient);
const char *ft_gradient_unit(enum ft_gradient gradient);
/* How many rows and columns a gradient has. */
int64_t ft_gradient_rows(const struct ft_request *request, enum ft_gradient gradient);
int ft_gradient_dim(const struct ft_request *request, enum ft_gradient gradient);
/* Where row `index` of a gradient lies: batch, head and i. Of dK and dV the head is a kv head and i
 * a key. */
struct ft_row ft_gradient_row_at(const struct ft_request *request, enum ft_gradient gradient,
                                 int64_t index);

/* The same of the rows that a problem has, in sequences of different lengths, too. */
int64_t ft_gradient_rows_used(const struct ft_host_problem *problem, enum ft_gradient gradient);
struct ft_row ft_gradient_row_used(const struct ft_host_problem *problem, enum ft_gradient gradient,
                                   int64_t index);

/* What a query contributes to all gradients. */
struct ft_query_terms {
  double lse, delta; /* rowsum(dO o O) - dLSE */
  float plain_delta;
  double dout_norm;  /* |dO| */
  double delta_size; /* |dO| |O| + |dLSE| */
};
/* Terms [batch, heads_q, seq] from the problem's O, LSE, dO, dLSE; to be freed by the caller. */
int ft_query_terms_make(struct ft_query_terms **terms, const struct ft_host_problem *problem);

/* One row of a gradient, exact and plain (the less exact way of the two); its yardstick and, as a
 * root of a sum of squares, too, what it may lose by subnormal weights; how far ties may move it:
 * the largest of its columns. */
struct ft_gradient_row {
  double exact[256], plain[256];
  double yardstick, subnormal, ties;
};
/* The scorer is one that is open for the problem; threads have one each. */
struct ft_scorer;
void ft_query_gradient(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                       const struct ft_query_terms *terms, struct ft_row row,
                       struct ft_gradient_row *dq);
/* The rows of dK and dV of a key. key.head is a kv head: they are sums over the query heads of its
 * group. */
void ft_key_gradients(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                      const struct ft_query_terms *terms, struct ft_row key,
                      struct ft_gradient_row *dk, struct ft_gradient_row *dv);

/* The gradient by the score of a row and a key that it sees, S' = score(S): P o (Z o dP - delta).
 */
struct ft_score_gradient {
  double exact, size; /* size: as that of dS */
  float plain;        /* not rounded to the dtype */
  int other;          /* n: as it is where ties are decided in the n-th other way */
};
typedef void ft_take_score_gradient(void *payload, const struct ft_score_gradient *gradient);
/* Calls take for every key that the row sees, while the scorer is at that key; then, while it is
 * there, for each other way in which ties may be decided. A key that float64 hides comes with 0
 * where there is such a way. */
void ft_score_gradients_of(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                           const struct ft_query_terms *terms, struct ft_row row,
                           ft_take_score_gradient *take, void *payload);

#endif
