/* gradients.h: the backward pass in float64 on the CPU, and the error a plain computation may make.
 * in -> out: host problem with O, LSE, dO, dLSE -> chosen rows of dQ, dK, dV; allowances; verdict.
 *
 *   P = exp(scale Q K^T - LSE)    Z = kept by dropout, over 1 - p    D = rowsum(dO o O) - dLSE
 *   dV = (Z o P)^T dO    dS = P o (Z o (dO V^T) - D)    dQ = scale dS K    dK = scale dS^T Q
 *
 * All of it is a function of what the kernel is given, O and LSE as they were rounded included:
 * what those have lost is no error of the backward. The plain computation has S, dO V^T, D and the
 * sums in fp32; P is kept in the dtype, as PyTorch keeps it for its backward, dS is rounded before
 * it is multiplied, the gradients at the end; 1 / (1 - p) comes last in dV, as in O.
 *
 * dS is a difference of what may be nearly equal (a query that sees one key has dS = 0), so an
 * error is not measured by the gradient but by its yardstick: the root of the squares that the sum
 * would have if nothing cancelled, with |dO| |V| + |dO| |O| + |dLSE| in place of the difference;
 * what is smaller than a normal number of the dtype, of P and dS, counts as one. */
#ifndef TUNER_GRADIENTS_H
#define TUNER_GRADIENTS_H

#include "tuner/verify/reference.h"

enum ft_gradient { FT_GRADIENT_Q, FT_GRADIENT_K, FT_GRADIENT_V, FT_GRADIENTS };

/* "dQ"; and what one of its rows belongs to: "row" (a query) or "key". */
const char *ft_gradient_name(enum ft_gradient gradient);
const char *ft_gradient_unit(enum ft_gradient gradient);
/* Rows it has, and columns. */
int64_t ft_gradient_rows(const struct ft_request *request, enum ft_gradient gradient);
int ft_gradient_dim(const struct ft_request *request, enum ft_gradient gradient);
/* Row `index` of them: batch, head (a kv head of dK, dV) and i (a key of those). */
struct ft_row ft_gradient_row_at(const struct ft_request *request, enum ft_gradient gradient,
                                 int64_t index);

/* What every row of O contributes to all gradients. */
struct ft_query_terms {
  double lse, dot; /* D */
  float plain_dot;
  double dout_norm; /* |dO| */
  double dot_size;  /* |dO| |O| + |dLSE| */
};
/* [batch, heads_q, seq], of O, LSE, dO, dLSE of the problem; to be freed. */
int ft_query_terms_make(struct ft_query_terms **terms, const struct ft_host_problem *problem);

/* One row of a gradient, exact and plain, and its yardstick: the largest of its columns. */
struct ft_gradient_row {
  double exact[256], plain[256];
  double yardstick;
};
void ft_query_gradient(const struct ft_host_problem *problem, const struct ft_query_terms *terms,
                       struct ft_row row, struct ft_gradient_row *dq);
/* key.head is a kv head: the sum is over the query heads of its group. */
void ft_key_gradients(const struct ft_host_problem *problem, const struct ft_query_terms *terms,
                      struct ft_row key, struct ft_gradient_row *dk, struct ft_gradient_row *dv);

#endif
