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

#include "generator/visibility.h"
#include "tuner/verify/host_problem.h"
#include "tuner/verify/scorer.h"

/* O (head_dim_v doubles) and LSE of one row in float64. A row that sees no key gets 0 and -inf.
 * Without memory all are NaN, which passes no comparison. */
void ft_reference_row(const struct ft_host_problem *problem, struct ft_row row, double *o,
                      double *lse);

/* The same by the plain same-dtype computation; o is already rounded to the dtype. */
void ft_plain_row(const struct ft_host_problem *problem, struct ft_row row, double *o, double *lse);

/* ---- the steps of a row, for callers that do many rows with one scratch ---- */

enum { FT_REFERENCE_DIM = 256 }; /* the largest head dim of a valid request */

/* A key with ties (generator/score/ties.h): its score depends on how they are decided. A key that
 * is hidden has the score -inf. */
struct ft_tied_key {
  int64_t key;
  double is, low, high; /* `is`: as float64 decides */
  bool kept;
};

/* One entry per visible key of a row. */
struct ft_row_scratch {
  int64_t *keys;
  double *exact; /* scale * q . k */
  float *plain;
  unsigned char *kept; /* by dropout */
  double score_bound; /* of e4m3: scale |q| |k| of the longest key, what no score exceeds; else 0 */
  double largest_score; /* scale |q . k|, of the finite ones */
  double spread;        /* of the finite scores the largest, less the largest of any 16 keys */
  double rounding; /* of fp32: what a score function's score errs by, as it is computed; else 0 */
  float place;     /* what ft_row_plain multiplies P by before it is rounded; 1 at first */
  struct ft_scorer scorer;
  struct ft_tied_key *tied; /* NULL where the score function decides nothing */
  int64_t tied_count;
};

/* Host copies have as many rows of each sequence as the longest one uses: whether this one is used.
 */
bool ft_row_exists(const struct ft_host_problem *problem, struct ft_row row);

/* Of the rows that sequences use, sequence after sequence, head after head. */
struct ft_row ft_row_of_sequences(const struct ft_packed_rows *rows, int heads, int64_t index);

/* The keys that a row's query sees by their positions; a mask may hide some of them. */
struct ft_interval ft_row_keys(const struct ft_host_problem *problem, struct ft_row row);

/* What the queries of a batch entry see. */
struct ft_visibility ft_row_visibility(const struct ft_host_problem *problem, int64_t batch);

/* The bitmap's line of blocks that the row falls into; NULL without a mask. */
const uint8_t *ft_mask_line(const struct ft_host_problem *problem, struct ft_row row);

/* Whether dropout keeps what the row has of key j. */
bool ft_row_keeps(const struct ft_host_problem *problem, struct ft_row row, int64_t j);

/* Element 0 of row `index` of K or V [batch, seq, heads_kv, dim], in the kv head of the row's head.
 */
const void *ft_kv_row(const struct ft_host_problem *problem, const void *tensor, int dim,
                      struct ft_row row, int64_t index);

/* q . k in float64 (products of 16-bit numbers are exact there) and in fp32; dim a multiple of 8.
 */
void ft_dot(const float *q, const float *k, int dim, double *exact, float *plain);

/* For rows of this problem, which has to outlive the scratch. */
int ft_row_scratch_make(struct ft_row_scratch *scratch, const struct ft_host_problem *problem);
void ft_row_scratch_free(struct ft_row_scratch *scratch);

/* Fills the scratch; returns the number of visible keys. */
int64_t ft_row_scores(const struct ft_host_problem *problem, struct ft_row row,
                      struct ft_row_scratch *scratch);

void ft_row_exact(const struct ft_host_problem *problem, struct ft_row row,
                  const struct ft_row_scratch *scratch, int64_t count, double *o, double *lse);
void ft_row_plain(const struct ft_host_problem *problem, struct ft_row row,
                  const struct ft_row_scratch *scratch, int64_t count, double *o, double *lse);

/* By how much more than the operands' own error P of fp32 may err, where S is large: S is summed in
 * steps of 16 columns, each sum truncated by up to 2^-23 of it, and what S errs by P errs by of
 * itself. In units of 2^-22, by which an operand errs. 1 for other dtypes. */
double ft_wobble(const struct ft_request *request, double score);

/* What S errs by in a kernel. size: scale |q| |k|, which no partial sum of S exceeds. A kernel sums
 * S in steps of 16 columns and truncates each sum by up to 2^-22 of size. Operands of fp32 err by
 * 2^-22 of themselves, those of TF32 by 2^-12. For e4m3 see answers.c. */
double ft_s_error(const struct ft_request *request, double size);

/* How far ties may move O (each element) and LSE of a row from what ft_row_exact has given. Weights
 * w = exp(S - LSE) sum to 1 less that of the sink; if some are w' instead, O moves by the sum of
 * (w' - w) (V - O) over the sum of w'. It stays among the values of V. */
void ft_row_ties(const struct ft_host_problem *problem, struct ft_row row,
                 const struct ft_row_scratch *scratch, int64_t count, const double *o, double lse,
                 double *of_o, double *of_lse);

/* What a key is to a row. HIDDEN: by its position. BLOCK: its block is off in the mask. */
enum ft_key { FT_KEY_KEPT, FT_KEY_DROPPED, FT_KEY_HIDDEN, FT_KEY_BLOCK /* or the score */ };

/* Says of each of the seqlen_k keys what it is to the row, and the weight that its row of V gets,
 * with dropout and its rescaling applied; the weight is 0 unless the key is kept. */
int ft_row_weights(const struct ft_host_problem *problem, struct ft_row row, double *weights,
                   unsigned char *keys, double *lse);
/* 1 / (1 - p) of the rounded p; 0 when everything is dropped, as nothing is left to rescale. */
double ft_dropout_rescale(const struct ft_host_problem *problem);

#endif
