/* reference.h: attention in float64 on the CPU, and the error a plain computation may make.
 * in -> out: host tensors + request + arguments -> O, LSE of chosen rows; allowed error per output.
 *
 * The allowance follows the rule: at most twice the error of a plain same-dtype computation (S and
 * softmax in fp32, P rounded to the dtype, PV accumulated in fp32, O rounded), both against
 * float64, per output. */
#ifndef TUNER_REFERENCE_H
#define TUNER_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/request.h"

/* One problem on the host. Tensors are dense [batch, seq, head, dim] in the request's dtype (16-bit
 * patterns); blocks is the mask bitmap [mask_batch, mask_heads, rows, cols] or NULL. */
struct ft_host_problem {
  struct ft_request request; /* all lengths, batch, heads filled in */
  const uint16_t *q, *k, *v;
  const uint8_t *blocks;
  int mask_batch, mask_heads;
  /* Of a backward alone, what the forward left and what comes in: [batch, seq, heads_q, head_dim_v]
   * and [batch, heads_q, seq]. dlse may be NULL. */
  const uint16_t *o, *dout;
  const float *lse, *dlse;
  double scale;
  double dropout; /* probability asked for */
  uint64_t seed, offset;
};

struct ft_row {
  int64_t batch;
  int head; /* query head */
  int64_t i;
};

/* O (head_dim_v doubles) and LSE of one row in float64. A row that sees no key: 0 and -inf. Out of
 * memory: NaN, which no comparison lets pass. */
void ft_reference_row(const struct ft_host_problem *problem, struct ft_row row, double *o,
                      double *lse);

/* The same by the plain same-dtype computation; o is already rounded to the dtype. */
void ft_plain_row(const struct ft_host_problem *problem, struct ft_row row, double *o, double *lse);

/* Whether element (i, j) of (batch, head) is kept by the dropout mask: Philox4x32-10, bit for bit
 * as templates/parts/dropout.cu.in. threshold = round(p * 2^14). */
bool ft_dropout_keeps(uint64_t seed, uint64_t offset, int64_t batch, int heads_q, int head,
                      int64_t i, int64_t j, uint32_t threshold);
uint32_t ft_dropout_threshold(double probability);

/* The word that register w of one of the eight fragments takes from a draw's four words. */
uint32_t ft_dropout_word(const uint32_t words[4], int w, int fragment);

/* The verdict over the outputs of some rows. error_ratio is the largest of three quotients error /
 * allowed, right when <= 1: O in relative L2 over all rows; O in its largest element, each row
 * measured by its own largest |value|; LSE in its largest element. Infinite for NaN, for a row that
 * sees no key and is not exactly 0 and -inf, and the other way round. */
struct ft_comparison {
  double error_ratio;
  double o_error, o_allowed;     /* relative L2 */
  double lse_error, lse_allowed; /* of the worst row, absolute; 0 without LSE */
  char worst[160];               /* what made the ratio, and where */
  struct ft_row row;             /* the worst, and its worst column of O or: */
  int column;
  bool damaged; /* a fence, a gap, an element not written: no value was compared */
  struct {
    double error, allowed;
  } gradients[3]; /* of dQ, dK, dV: relative L2 (tuner/gradients.h) */
};
enum { FT_COLUMN_LSE = -1, FT_COLUMN_NONE = -2 /* the fault is in no row */ };

/* What chosen rows of a problem must give: computed once, compared with many times. */
struct ft_answers;

/* Both computations of each row, by `threads` threads. problem and rows may go away afterwards. */
int ft_answers_make(struct ft_answers **answers, const struct ft_host_problem *problem,
                    const struct ft_row *rows, int row_count, int threads);
void ft_answers_free(struct ft_answers *answers);

/* o: dtype patterns [row][head_dim_v]; lse: float [row], or NULL. */
void ft_answers_compare(const struct ft_answers *answers, const uint16_t *o, const float *lse,
                        struct ft_comparison *comparison);

/* Of row `index` alone, by the same allowances. */
struct ft_row_verdict {
  double o_ratio; /* of the worst element, which is: */
  double o, o_expected;
  int column;
  double o_square; /* squared error */
  double lse_ratio, lse_error, lse_allowed;
  double lse, lse_expected;
};
void ft_answers_row(const struct ft_answers *answers, int index, const uint16_t *o,
                    const float *lse, struct ft_row_verdict *verdict);
/* Whether this one element is right. */
bool ft_answers_element(const struct ft_answers *answers, int index, int column, uint16_t o);

/* make, compare, free in one. */
int ft_reference_compare(struct ft_comparison *comparison, const struct ft_host_problem *problem,
                         const struct ft_row *rows, int row_count, const uint16_t *o,
                         const float *lse, int threads);

/* Philox4x32-10 (Salmon et al., SC 2011): counter and key -> four words. */
void ft_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

double ft_from_dtype(enum ft_dtype dtype, uint16_t bits);
uint16_t ft_to_dtype(enum ft_dtype dtype, double value); /* round to nearest even */

/* ft_from_dtype(ft_to_dtype(value)), fast enough for inner loops. */
float ft_round_to_dtype(enum ft_dtype dtype, float value);
/* Patterns -> floats; exact. */
void ft_widen(enum ft_dtype dtype, const uint16_t *from, float *to, int count);

#endif
