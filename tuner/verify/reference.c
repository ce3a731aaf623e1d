/* reference.c: attention of one row on the CPU, in float64 and as a plain same-dtype program does
 * it.
 * in -> out: host tensors + (batch, head, i) -> O and LSE of the row. Both computations share the
 * visible keys and the dropout mask. They differ in arithmetic alone, so the error of the plain one
 * is the yardstick for a kernel's. */

#include "tuner/verify/reference.h"

#include <math.h>
#include <stdlib.h>

#include "generator/status.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/philox.h"

enum { LANES = 8, SUM_BLOCK = 128 };
enum { STEP = 16 }; /* columns that a tensor core sums up at a time */

int ft_row_scratch_make(struct ft_row_scratch *scratch, const struct ft_host_problem *problem) {
  const size_t count = (size_t)problem->request.seqlen_k;
  *scratch = (struct ft_row_scratch){.keys = malloc(count * sizeof(int64_t)),
                                     .exact = malloc(count * sizeof(double)),
                                     .plain = malloc(count * sizeof(float)),
                                     .kept = malloc(count),
                                     .place = 1};
  const int status = ft_scorer_open(&scratch->scorer, problem);
  const bool decides = ft_scorer_decides(&scratch->scorer);
  if (decides) scratch->tied = malloc(count * sizeof *scratch->tied);
  if (status == FT_OK && scratch->keys && scratch->exact && scratch->plain && scratch->kept &&
      (scratch->tied || !decides))
    return FT_OK;
  ft_row_scratch_free(scratch);
  return ft_fail(FT_E_MEMORY, "no memory for a reference row of %zu keys", count);
}

void ft_row_scratch_free(struct ft_row_scratch *scratch) {
  free(scratch->keys);
  free(scratch->exact);
  free(scratch->plain);
  free(scratch->kept);
  free(scratch->tied);
  ft_scorer_close(&scratch->scorer);
  *scratch = (struct ft_row_scratch){0};
}

struct ft_visibility ft_row_visibility(const struct ft_host_problem *problem, int64_t batch) {
  const struct ft_request own =
      ft_request_of_sequence(&problem->request, problem->sequences, batch);
  return ft_visibility_of(&own);
}

bool ft_row_exists(const struct ft_host_problem *problem, struct ft_row row) {
  return !problem->sequences || row.i < problem->sequences->q.used[row.batch];
}

struct ft_row ft_row_of_sequences(const struct ft_packed_rows *rows, int heads, int64_t index) {
  struct ft_row row = {0};
  while (index >= (int64_t)rows->used[row.batch] * heads)
    index -= (int64_t)rows->used[row.batch++] * heads;
  row.head = (int)(index / rows->used[row.batch]);
  row.i = index % rows->used[row.batch];
  return row;
}

struct ft_interval ft_row_keys(const struct ft_host_problem *problem, struct ft_row row) {
  const struct ft_visibility visibility = ft_row_visibility(problem, row.batch);
  return ft_keys_of(&visibility, row.i);
}

const uint8_t *ft_mask_line(const struct ft_host_problem *problem, struct ft_row row) {
  const struct ft_request *request = &problem->request;
  if (!problem->blocks || request->mask_rows == 0) return NULL;
  const int64_t rows = (request->seqlen_q + request->mask_rows - 1) / request->mask_rows;
  const int64_t cols = (request->seqlen_k + request->mask_cols - 1) / request->mask_cols;
  const int64_t batch = problem->mask_batch == 1 ? 0 : row.batch;
  const int64_t head = problem->mask_heads == 1 ? 0 : row.head;
  return problem->blocks +
         ((batch * problem->mask_heads + head) * rows + row.i / request->mask_rows) * cols;
}

const void *ft_kv_row(const struct ft_host_problem *problem, const void *tensor, int dim,
                      struct ft_row row, int64_t index) {
  const struct ft_request *request = &problem->request;
  const int kv_head = row.head / (request->heads_q / request->heads_kv);
  return ft_element(ft_kept_dtype(request->dtype), tensor,
                    ((row.batch * request->seqlen_k + index) * request->heads_kv + kv_head) * dim);
}

/* The lanes let the compiler use vector registers. Either sum may be taken in any order. */
void ft_dot(const float *q, const float *k, int dim, double *exact, float *plain) {
  double sums[LANES] = {0};
  float plain_sums[LANES] = {0};
  for (int d = 0; d < dim; d += LANES) {
    for (int lane = 0; lane < LANES; lane++) {
      sums[lane] += (double)q[d + lane] * (double)k[d + lane];
      plain_sums[lane] += q[d + lane] * k[d + lane];
    }
  }
  *exact = 0;
  *plain = 0;
  for (int lane = 0; lane < LANES; lane++) {
    *exact += sums[lane];
    *plain += plain_sums[lane];
  }
}

/* The factor of row `index` of Q, K or V, of the head that a query row has to do with. */
static double descale_of(const struct ft_host_problem *problem, int tensor, struct ft_row row,
                         int64_t index) {
  const struct ft_request *const request = &problem->request;
  const bool of_q = tensor == FT_DESCALE_Q;
  const int heads = of_q ? request->heads_q : request->heads_kv;
  const int head = of_q ? row.head : row.head / (request->heads_q / request->heads_kv);
  const float *const factors = problem->descales[tensor];
  const int64_t blocks =
      ft_descale_blocks(request->descale_rows, of_q ? request->seqlen_q : request->seqlen_k);
  const int64_t block = request->descale_rows == 0 ? 0 : index / request->descale_rows;
  return factors ? (double)factors[(row.batch * heads + head) * blocks + block] : 1;
}

/* Of operands rounded to TF32. */
static float tf32_dot(const float *q, const float *k, int dim) {
  float rounded[2][FT_REFERENCE_DIM], plain;
  double exact;
  ft_round_operand(FT_TF32, q, rounded[0], dim);
  ft_round_operand(FT_TF32, k, rounded[1], dim);
  ft_dot(rounded[0], rounded[1], dim, &exact, &plain);
  return plain;
}

double ft_wobble(const struct ft_request *request, double score) {
  if (request->dtype != FT_FP32) return 1;
  return 1 + 0.5 * sqrt(ceil(request->head_dim / (double)STEP)) * fabs(score);
}

double ft_s_error(const struct ft_request *request, double size) {
  const double steps = ceil(request->head_dim / (double)STEP);
  if (request->dtype == FT_E4M3) return 0x1p-12 * size;
  const double operands = request->dtype == FT_FP32   ? 2 * 0x1p-22
                          : request->dtype == FT_TF32 ? 2 * 0x1p-12
                                                      : 0;
  return (operands + (steps + 1) * 0x1p-22) * size;
}

static double length_of(const float *vector, int dim) {
  double square = 0;
  for (int d = 0; d < dim; d++) square += (double)vector[d] * (double)vector[d];
  return sqrt(square);
}

/* Keeps what the ties of the scorer's key make of its score. */
static void note_ties(struct ft_row_scratch *scratch, struct ft_tied_key key) {
  const int others = ft_scorer_others(&scratch->scorer);
  key.low = key.high = key.is;
  for (int n = 1; n <= others; n++) {
    const struct ft_scored other = ft_scorer_other(&scratch->scorer, n);
    const double score = other.visible ? other.score : -HUGE_VAL;
    key.low = fmin(key.low, score);
    key.high = fmax(key.high, score);
  }
  if (key.low < key.high) scratch->tied[scratch->tied_count++] = key;
}

bool ft_row_keeps(const struct ft_host_problem *problem, struct ft_row row, int64_t j) {
  const struct ft_request *const r = &problem->request;
  const uint32_t threshold = r->dropout ? ft_dropout_threshold(problem->dropout) : 0;
  return threshold == 0 || ft_dropout_keeps(problem->seed, problem->offset, row.batch, r->heads_q,
                                            row.head, row.i, j, threshold);
}

/* How far the row's largest score is above the largest of any GROUP keys: no step of a kernel has
 * fewer. */
static double spread_of(const struct ft_row_scratch *scratch, int64_t count) {
  enum { GROUP = 16 };
  double high = -HUGE_VAL, low = HUGE_VAL, of_group = -HUGE_VAL;
  for (int64_t n = 0; n < count; n++) {
    if (isfinite(scratch->exact[n])) of_group = fmax(of_group, scratch->exact[n]);
    if (n + 1 < count && scratch->keys[n + 1] / GROUP == scratch->keys[n] / GROUP) continue;
    high = fmax(high, of_group);
    if (isfinite(of_group)) low = fmin(low, of_group);
    of_group = -HUGE_VAL;
  }
  return high > low ? high - low : 0;
}

int64_t ft_row_scores(const struct ft_host_problem *problem, struct ft_row row,
                      struct ft_row_scratch *scratch) {
  const struct ft_request *request = &problem->request;
  const int dim = request->head_dim;
  const uint8_t *line = ft_mask_line(problem, row);
  const struct ft_visibility visibility = ft_row_visibility(problem, row.batch);
  const struct ft_interval keys = ft_keys_of(&visibility, row.i);
  const enum ft_dtype dtype = ft_kept_dtype(request->dtype);
  const double scale_q = problem->scale * descale_of(problem, FT_DESCALE_Q, row, row.i);
  float q[FT_REFERENCE_DIM], k[FT_REFERENCE_DIM];
  ft_widen(
      dtype,
      ft_element(dtype, problem->q,
                 ((row.batch * request->seqlen_q + row.i) * request->heads_q + row.head) * dim),
      q, dim);

  ft_scorer_enter(&scratch->scorer, row);
  int64_t count = 0;
  scratch->tied_count = 0;
  double longest = 0, largest = 0, rounding = 0;
  for (int64_t j = keys.begin; j < keys.end; j++) {
    if (!ft_sees(&visibility, row.i, j) || (line && !line[j / request->mask_cols])) continue;
    ft_widen(dtype, ft_kv_row(problem, problem->k, dim, row, j), k, dim);
    const double of_k = descale_of(problem, FT_DESCALE_K, row, j), scale = scale_q * of_k;
    double exact;
    float plain;
    ft_dot(q, k, dim, &exact, &plain);
    if (request->dtype == FT_TF32) plain = tf32_dot(q, k, dim);
    const double of_s =
        scratch->tied ? ft_s_error(request, scale * length_of(q, dim) * length_of(k, dim)) : 0;
    struct ft_scored of_plain;
    const struct ft_scored of_exact = ft_scorer_both(
        &scratch->scorer, j, exact * scale, (double)(plain * (float)scale), of_s, &of_plain);
    const bool kept = ft_row_keeps(problem, row, j);
    if (scratch->tied)
      note_ties(scratch, (struct ft_tied_key){.key = j,
                                              .is = of_exact.visible ? of_exact.score : -HUGE_VAL,
                                              .kept = kept});
    if (!of_exact.visible) continue;
    if (request->dtype == FT_E4M3) longest = fmax(longest, of_k * length_of(k, dim));
    if (isfinite(exact)) largest = fmax(largest, fabs(exact * scale));
    rounding = fmax(rounding, of_exact.rounding);
    scratch->keys[count] = j;
    scratch->exact[count] = of_exact.score;
    scratch->plain[count] = (float)of_plain.score;
    scratch->kept[count] = kept;
    count += 1;
  }
  scratch->score_bound = request->dtype == FT_E4M3 ? scale_q * length_of(q, dim) * longest : 0;
  scratch->largest_score = largest;
  scratch->rounding = rounding;
  scratch->spread = spread_of(scratch, count);
  return count;
}

double ft_dropout_rescale(const struct ft_host_problem *problem) {
  const double share =
      problem->request.dropout ? ft_dropout_threshold(problem->dropout) / 16384.0 : 0;
  return share < 1 ? 1 / (1 - share) : 0;
}

/* What the V of a key is multiplied by besides. */
static double value_factor(const struct ft_host_problem *problem, struct ft_row row, int64_t key) {
  return ft_dropout_rescale(problem) * descale_of(problem, FT_DESCALE_V, row, key);
}

/* By which P times the factors of V is divided before it is rounded: then its largest is 1. */
static float largest_factor(const struct ft_host_problem *problem, struct ft_row row,
                            const struct ft_row_scratch *scratch, int64_t count, float max) {
  if (problem->request.descale_rows == 0) return (float)value_factor(problem, row, 0);
  float most = 0;
  for (int64_t n = 0; n < count; n++)
    most = fmaxf(most, expf(scratch->plain[n] - max) *
                           (float)value_factor(problem, row, scratch->keys[n]));
  return most;
}

/* A row's P, of which the largest is 1. E4m3 holds it times 2^8, so that few of it are denormal. */
static float round_p(const struct ft_host_problem *problem, float p) {
  if (problem->request.dtype == FT_E4M3) return ft_from_e4m3(ft_to_e4m3(p * 0x1p8f)) * 0x1p-8f;
  return ft_round_to_dtype(problem->request.dtype, p);
}

static double sink_of(const struct ft_host_problem *problem, struct ft_row row) {
  return problem->sinks ? (double)problem->sinks[row.head] : -INFINITY;
}

/* max and sum of a row, relative to max, with its sink. */
static void add_sink(double sink, double *max, double *sum) {
  const double old = *max;
  if (sink == -INFINITY) return;
  *max = fmax(old, sink);
  *sum = (old == -INFINITY ? 0 : *sum * exp(old - *max)) + exp(sink - *max);
}

void ft_row_exact(const struct ft_host_problem *problem, struct ft_row row,
                  const struct ft_row_scratch *scratch, int64_t count, double *o, double *lse) {
  const int dim = problem->request.head_dim_v;
  for (int d = 0; d < dim; d++) o[d] = 0;
  *lse = sink_of(problem, row);
  if (count == 0) return;

  double max = -INFINITY, sum = 0;
  for (int64_t n = 0; n < count; n++) max = scratch->exact[n] > max ? scratch->exact[n] : max;
  const enum ft_dtype dtype = ft_kept_dtype(problem->request.dtype);
  float v[FT_REFERENCE_DIM];
  for (int64_t n = 0; n < count; n++) {
    const double p = exp(scratch->exact[n] - max);
    sum += p;
    if (!scratch->kept[n]) continue;
    ft_widen(dtype, ft_kv_row(problem, problem->v, dim, row, scratch->keys[n]), v, dim);
    const double weight = p * value_factor(problem, row, scratch->keys[n]);
    for (int d = 0; d < dim; d++) o[d] += weight * (double)v[d];
  }
  const double of_keys = max;
  add_sink(sink_of(problem, row), &max, &sum);
  const double factor = exp(of_keys - max) / sum;
  for (int d = 0; d < dim; d++) o[d] *= factor;
  *lse = max + log(sum);
}

void ft_row_plain(const struct ft_host_problem *problem, struct ft_row row,
                  const struct ft_row_scratch *scratch, int64_t count, double *o, double *lse) {
  const enum ft_dtype kept_as = ft_kept_dtype(problem->request.dtype);
  const int dim = problem->request.head_dim_v;
  for (int d = 0; d < dim; d++) o[d] = 0;
  *lse = sink_of(problem, row);
  if (count == 0) return;

  float max = -INFINITY, sum = 0, block_sum = 0;
  const float sink = (float)sink_of(problem, row);
  for (int64_t n = 0; n < count; n++) max = scratch->plain[n] > max ? scratch->plain[n] : max;
  const float most = largest_factor(problem, row, scratch, count, max);
  max = fmaxf(max, sink);
  float v[FT_REFERENCE_DIM], accumulator[FT_REFERENCE_DIM] = {0};
  for (int64_t n = 0; n < count; n++) {
    const float p = expf(scratch->plain[n] - max);
    block_sum += p; /* summed in blocks, as any parallel program does; one long chain would err by
                       too much for a yardstick of LSE */
    if (n % SUM_BLOCK == SUM_BLOCK - 1 || n == count - 1) {
      sum += block_sum;
      block_sum = 0;
    }
    if (!scratch->kept[n]) continue;
    const float of_v = (float)value_factor(problem, row, scratch->keys[n]) / most;
    const float rounded = round_p(problem, p * of_v * scratch->place);
    ft_widen(kept_as, ft_kv_row(problem, problem->v, dim, row, scratch->keys[n]), v, dim);
    ft_round_operand(problem->request.dtype, v, v, dim);
    for (int d = 0; d < dim; d++) accumulator[d] += rounded * v[d];
  }
  sum += expf(sink - max);
  for (int d = 0; d < dim; d++) {
    o[d] = (double)ft_round_to_dtype(ft_output_dtype(&problem->request),
                                     accumulator[d] / sum * most / scratch->place);
  }
  *lse = (double)(max + logf(sum));
}

/* The largest |V| of a key that is kept, with what it is multiplied by besides. */
static double largest_value(const struct ft_host_problem *problem, struct ft_row row, int64_t key) {
  const int dim = problem->request.head_dim_v;
  float v[FT_REFERENCE_DIM], largest = 0;
  ft_widen(ft_kept_dtype(problem->request.dtype), ft_kv_row(problem, problem->v, dim, row, key), v,
           dim);
  for (int d = 0; d < dim; d++) largest = fmaxf(largest, fabsf(v[d]));
  return (double)largest * value_factor(problem, row, key);
}

void ft_row_ties(const struct ft_host_problem *problem, struct ft_row row,
                 const struct ft_row_scratch *scratch, int64_t count, const double *o, double lse,
                 double *of_o, double *of_lse) {
  double o_most = 0, v_most = 0, more = 0, less = 0, moved = 0;
  *of_o = *of_lse = 0;
  if (scratch->tied_count == 0) return;
  for (int d = 0; d < problem->request.head_dim_v; d++) o_most = fmax(o_most, fabs(o[d]));
  for (int64_t n = 0; n < count; n++)
    if (scratch->kept[n]) v_most = fmax(v_most, largest_value(problem, row, scratch->keys[n]));
  for (int64_t n = 0; n < scratch->tied_count; n++) {
    const struct ft_tied_key *const tied = &scratch->tied[n];
    const double v = tied->kept ? largest_value(problem, row, tied->key) : 0;
    const double is = exp(tied->is - lse);
    v_most = fmax(v_most, v);
    more += exp(tied->high - lse) - is;
    less += is - exp(tied->low - lse);
    moved += (exp(tied->high - lse) - exp(tied->low - lse)) * (v + o_most);
  }
  const bool all_may_go = !(less < 1) || !isfinite(lse);
  *of_o = all_may_go ? v_most + o_most : fmin(moved / (1 - less), v_most + o_most);
  *of_lse = all_may_go ? HUGE_VAL : fmax(log1p(more), -log1p(-less));
}

static void sort_keys(const struct ft_host_problem *problem, struct ft_row row,
                      const struct ft_row_scratch *scratch, int64_t count, unsigned char *keys) {
  const struct ft_visibility visibility = ft_row_visibility(problem, row.batch);
  for (int64_t j = 0; j < problem->request.seqlen_k; j++) {
    keys[j] = ft_sees(&visibility, row.i, j) ? FT_KEY_BLOCK : FT_KEY_HIDDEN;
  }
  for (int64_t n = 0; n < count; n++) {
    keys[scratch->keys[n]] = scratch->kept[n] ? FT_KEY_KEPT : FT_KEY_DROPPED;
  }
}

int ft_row_weights(const struct ft_host_problem *problem, struct ft_row row, double *weights,
                   unsigned char *keys, double *lse) {
  struct ft_row_scratch scratch;
  FT_TRY(ft_row_scratch_make(&scratch, problem));
  const int64_t count = ft_row_scores(problem, row, &scratch);
  sort_keys(problem, row, &scratch, count, keys);
  double max = -INFINITY, sum = 0;
  for (int64_t n = 0; n < count; n++) max = fmax(max, scratch.exact[n]);
  for (int64_t n = 0; n < count; n++) sum += exp(scratch.exact[n] - max);
  add_sink(sink_of(problem, row), &max, &sum);
  *lse = sum > 0 ? max + log(sum) : -INFINITY;
  for (int64_t j = 0; j < problem->request.seqlen_k; j++) weights[j] = 0;
  for (int64_t n = 0; n < count; n++) {
    if (!scratch.kept[n]) continue;
    weights[scratch.keys[n]] =
        exp(scratch.exact[n] - *lse) * value_factor(problem, row, scratch.keys[n]);
  }
  ft_row_scratch_free(&scratch);
  return FT_OK;
}

typedef void row_function(const struct ft_host_problem *problem, struct ft_row row,
                          const struct ft_row_scratch *scratch, int64_t count, double *o,
                          double *lse);

static void one_row(row_function *compute, const struct ft_host_problem *problem, struct ft_row row,
                    double *o, double *lse) {
  struct ft_row_scratch scratch;
  if (ft_row_scratch_make(&scratch, problem) != FT_OK) {
    for (int d = 0; d < problem->request.head_dim_v; d++) o[d] = NAN;
    *lse = NAN;
    return;
  }
  const int64_t count = ft_row_scores(problem, row, &scratch);
  compute(problem, row, &scratch, count, o, lse);
  ft_row_scratch_free(&scratch);
}

void ft_reference_row(const struct ft_host_problem *problem, struct ft_row row, double *o,
                      double *lse) {
  one_row(ft_row_exact, problem, row, o, lse);
}

void ft_plain_row(const struct ft_host_problem *problem, struct ft_row row, double *o,
                  double *lse) {
  one_row(ft_row_plain, problem, row, o, lse);
}
