/* gradients.c: rows of dQ, dK, dV on the CPU, in float64 and as a plain same-dtype program does it.
 * in -> out: host problem + terms of its queries + row -> the row of a gradient. */

#include "tuner/verify/gradients.h"

#include <math.h>
#include <stdlib.h>

#include "generator/status.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/scorer.h"

const char *ft_gradient_name(enum ft_gradient gradient) {
  static const char *const names[] = {"dQ", "dK", "dV"};
  return names[gradient];
}

const char *ft_gradient_unit(enum ft_gradient gradient) {
  return gradient == FT_GRADIENT_Q ? "row" : "key";
}

int64_t ft_gradient_rows(const struct ft_request *request, enum ft_gradient gradient) {
  return request->batch * (gradient == FT_GRADIENT_Q ? request->heads_q * request->seqlen_q
                                                     : request->heads_kv * request->seqlen_k);
}

int ft_gradient_dim(const struct ft_request *request, enum ft_gradient gradient) {
  return gradient == FT_GRADIENT_V ? request->head_dim_v : request->head_dim;
}

struct ft_row ft_gradient_row_at(const struct ft_request *request, enum ft_gradient gradient,
                                 int64_t index) {
  const bool of_q = gradient == FT_GRADIENT_Q;
  const int64_t rows = of_q ? request->seqlen_q : request->seqlen_k;
  const int heads = of_q ? request->heads_q : request->heads_kv;
  return (struct ft_row){
      .batch = index / rows / heads, .head = (int)(index / rows % heads), .i = index % rows};
}

static const struct ft_packed_rows *packed_rows(const struct ft_host_problem *problem,
                                                enum ft_gradient gradient) {
  return gradient == FT_GRADIENT_Q ? &problem->sequences->q : &problem->sequences->k;
}

static int heads_of(const struct ft_request *request, enum ft_gradient gradient) {
  return gradient == FT_GRADIENT_Q ? request->heads_q : request->heads_kv;
}

int64_t ft_gradient_rows_used(const struct ft_host_problem *problem, enum ft_gradient gradient) {
  if (!problem->sequences) return ft_gradient_rows(&problem->request, gradient);
  return packed_rows(problem, gradient)->in_use * heads_of(&problem->request, gradient);
}

struct ft_row ft_gradient_row_used(const struct ft_host_problem *problem, enum ft_gradient gradient,
                                   int64_t index) {
  if (!problem->sequences) return ft_gradient_row_at(&problem->request, gradient, index);
  return ft_row_of_sequences(packed_rows(problem, gradient), heads_of(&problem->request, gradient),
                             index);
}

/* ---- what a query brings along ---- */

/* Element 0 of row i of a Q or O like tensor [batch, seq, heads_q, dim]. */
static const void *query_row(const struct ft_request *request, const void *tensor, int dim,
                             struct ft_row row) {
  return ft_element(request->dtype, tensor,
                    ((row.batch * request->seqlen_q + row.i) * request->heads_q + row.head) * dim);
}

static int64_t query_index(const struct ft_request *request, struct ft_row row) {
  return (row.batch * request->heads_q + row.head) * request->seqlen_q + row.i;
}

static double norm(const float *values, int dim) {
  double square;
  float plain;
  ft_dot(values, values, dim, &square, &plain);
  return sqrt(square);
}

int ft_query_terms_make(struct ft_query_terms **terms, const struct ft_host_problem *problem) {
  const struct ft_request *r = &problem->request;
  const int64_t count = ft_gradient_rows(r, FT_GRADIENT_Q);
  const int dim = r->head_dim_v;
  struct ft_query_terms *made = malloc((size_t)count * sizeof *made);
  *terms = made;
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for %lld queries", (long long)count);
  for (int64_t n = 0; n < count; n++) {
    const struct ft_row row = ft_gradient_row_at(r, FT_GRADIENT_Q, n);
    const float dlse = problem->dlse ? problem->dlse[n] : 0;
    float o[FT_REFERENCE_DIM], dout[FT_REFERENCE_DIM];
    ft_widen(r->dtype, query_row(r, problem->o, dim, row), o, dim);
    ft_widen(r->dtype, query_row(r, problem->dout, dim, row), dout, dim);
    ft_dot(o, dout, dim, &made[n].delta, &made[n].plain_delta);
    made[n].delta -= (double)dlse;
    made[n].plain_delta -= dlse;
    made[n].lse = (double)problem->lse[n];
    made[n].dout_norm = norm(dout, dim);
    made[n].delta_size = made[n].dout_norm * norm(o, dim) + fabs((double)dlse);
  }
  return FT_OK;
}

/* ---- one pair of query and key ---- */

/* A query or a key, in floats: Q or K, and dO or V. Rounded as products of the dtype take them. */
struct operands {
  float first[FT_REFERENCE_DIM], second[FT_REFERENCE_DIM];
  float rounded_first[FT_REFERENCE_DIM], rounded_second[FT_REFERENCE_DIM];
  double second_norm;
};

static void load(struct operands *operands, const struct ft_host_problem *problem,
                 const void *first, const void *second) {
  const struct ft_request *r = &problem->request;
  ft_widen(r->dtype, first, operands->first, r->head_dim);
  ft_widen(r->dtype, second, operands->second, r->head_dim_v);
  ft_round_operand(r->dtype, operands->first, operands->rounded_first, r->head_dim);
  ft_round_operand(r->dtype, operands->second, operands->rounded_second, r->head_dim_v);
  operands->second_norm = norm(operands->second, r->head_dim_v);
}

static void load_query(struct operands *query, const struct ft_host_problem *problem,
                       struct ft_row row) {
  const struct ft_request *r = &problem->request;
  load(query, problem, query_row(r, problem->q, r->head_dim, row),
       query_row(r, problem->dout, r->head_dim_v, row));
}

/* Key j as the query row sees it, of the kv head of its group. */
static void load_key(struct operands *key, const struct ft_host_problem *problem, struct ft_row row,
                     int64_t j) {
  const struct ft_request *r = &problem->request;
  load(key, problem, ft_kv_row(problem, problem->k, r->head_dim, row, j),
       ft_kv_row(problem, problem->v, r->head_dim_v, row, j));
}

/* dS and P of a query and a key; P = 0 where dropout drops it. A size is what the number could be
 * if nothing cancelled. It is no less than the smallest normal number, below which rounding errs by
 * as much. */
struct pair {
  double ds, ds_size, p, p_size;
  double ds_subnormal;     /* what dS may lose where P times the slope is subnormal; else 0 */
  double ds_ties, p_ties;  /* how far ties may move dS and P */
  int others;              /* in how many other ways they may be decided */
  double difference, unit; /* Z o dP - delta, and what it could be if nothing cancelled */
  double normal, wobble;   /* the least P that counts, and what P is multiplied by, in p_size */
  float plain_ds, plain_p; /* rounded to the dtype */
  float weighing;          /* plain_ds with four roundings (gradients.h), less plain_ds */
  struct ft_score_gradient by_score;
};

/* Whether the row sees key j, by its position and by the mask. */
static bool sees(const struct ft_host_problem *problem, struct ft_row row, int64_t j) {
  const struct ft_visibility visibility = ft_row_visibility(problem, row.batch);
  const uint8_t *line = ft_mask_line(problem, row);
  return ft_sees(&visibility, row.i, j) && (!line || line[j / problem->request.mask_cols]);
}

/* Half a unit in the last place of P times a slope that varies, rounded to fp16, if that is too
 * small for a normal number; else 0. Where it does not vary, dS may as well be made without it and
 * multiplied by it at the end. */
static double subnormal_weight(const struct ft_host_problem *problem, double weight) {
  static const double smallest_normal = 0x1p-14;
  if (problem->request.dtype != FT_FP16 || !problem->score || !problem->score->slope_varies)
    return 0;
  return fabs(weight) < smallest_normal ? ft_half_ulp(FT_FP16, weight) : 0;
}

/* dS of P, in the dtype, times the slope. Where this is beyond the dtype: as it is without. */
static float weighed_ds(const struct ft_host_problem *problem, float p, float difference,
                        float slope, float plain_ds) {
  const enum ft_dtype dtype = problem->request.dtype;
  if (ft_dtype_is_fp32(dtype) || !ft_score_weighs_p(problem->score, &problem->request))
    return plain_ds;
  const float weight = p == 0 ? 0 : ft_round_to_dtype(dtype, p * ft_round_to_dtype(dtype, slope));
  const float ds = ft_round_to_dtype(dtype, weight * difference);
  return isfinite(ds) ? ds : plain_ds;
}

/* The relative error that P may have, in the unit of ft_wobble. In fp32 a score function's own
 * roundings are in the exponent, and so is that of LSE times log2 e, as large as the score's. (The
 * score times log2 e is a part of an FMA and not rounded, and LSE is taken as it is given.) */
static double wobble_of(const struct ft_host_problem *problem, double score,
                        const struct ft_scored *scored) {
  const double of_products = ft_wobble(&problem->request, score * problem->scale * scored->slope);
  const bool rounds = problem->score && problem->request.dtype == FT_FP32;
  return of_products + (rounds ? (scored->rounding + 0x1p-24 * fabs(scored->score)) / 0x1p-22 : 0);
}

/* A slope may itself be the difference of numbers that are nearly equal: 1 - tanh^2. */
static const double LEAST_SLOPE = 0x1p-8;

/* P where ties make this of the key. */
static double p_of(const struct ft_scored *scored, double lse) {
  return scored->visible && isfinite(lse) ? exp(scored->score - lse) : 0;
}

/* A number that ties make larger is rounded by more, too: sizes are those of the largest. Leaves
 * the scorer as it was. */
static void add_ties_of(struct ft_scorer *scorer, const struct ft_query_terms *terms, bool kept,
                        struct pair *pair) {
  pair->others = ft_scorer_others(scorer);
  for (int n = 1; n <= pair->others; n++) {
    const struct ft_scored other = ft_scorer_other(scorer, n);
    const double p = p_of(&other, terms->lse);
    const double ds = p > 0 ? p * pair->difference * other.slope : 0;
    const double p_size = fmax(p, pair->normal) * pair->wobble;
    pair->ds_ties = fmax(pair->ds_ties, fabs(ds - pair->ds));
    pair->ds_size = fmax(pair->ds_size, p_size * pair->unit * fmax(fabs(other.slope), LEAST_SLOPE));
    if (!kept) continue;
    pair->p_ties = fmax(pair->p_ties, fabs(p - pair->p));
    pair->p_size = fmax(pair->p_size, p_size);
  }
  if (pair->others > 0) (void)ft_scorer_other(scorer, 0);
}

/* What S of a query and a key errs by where a score function decides something. */
static double s_error(const struct ft_host_problem *problem, const struct ft_scorer *scorer,
                      const struct operands *query, const struct operands *key) {
  const struct ft_request *r = &problem->request;
  if (!ft_scorer_decides(scorer)) return 0;
  return ft_s_error(r, problem->scale * norm(query->first, r->head_dim) *
                           norm(key->first, r->head_dim));
}

/* Of row and key j, where kept says whether dropout keeps them. What is hidden is all 0. */
static struct pair untied_pair(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                               const struct ft_query_terms *terms, const struct operands *query,
                               const struct operands *key, int64_t j, bool kept) {
  const struct ft_request *r = &problem->request;
  const double rescale = kept ? ft_dropout_rescale(problem) : 0;
  double score, dp;
  float plain_score, plain_dp;
  ft_dot(query->first, key->first, r->head_dim, &score, &plain_score);
  ft_dot(query->second, key->second, r->head_dim_v, &dp, &plain_dp);
  if (r->dtype == FT_TF32) {
    double unused;
    ft_dot(query->rounded_first, key->rounded_first, r->head_dim, &unused, &plain_score);
    ft_dot(query->rounded_second, key->rounded_second, r->head_dim_v, &unused, &plain_dp);
  }
  struct ft_scored of_plain;
  const struct ft_scored scored = ft_scorer_both(scorer, j, score * problem->scale,
                                                 (double)(plain_score * (float)problem->scale),
                                                 s_error(problem, scorer, query, key), &of_plain);
  const double difference = dp * rescale - terms->delta;
  const double unit = terms->dout_norm * key->second_norm * rescale + terms->delta_size;
  /* Below it P errs by more than half a unit in the last place: of bf16 and fp32 because what is
   * less than 2^-126 may become 0. */
  const double normal = r->dtype == FT_FP16 ? 0x1p-14 : 0x1p-126 / ft_half_ulp(r->dtype, 1);
  const double wobble = scored.visible ? wobble_of(problem, score, &scored) : 1;
  if (!scored.visible)
    return (struct pair){
        .difference = difference, .unit = unit, .normal = normal, .wobble = wobble};
  const double p = exp(scored.score - terms->lse);
  const float plain_p = expf((float)of_plain.score - (float)terms->lse);
  const float rounded_p = ft_round_to_dtype(r->dtype, plain_p);
  /* A program of fp32 tensors keeps P in fp32: TF32 is what products take. */
  const float kept_p = r->dtype == FT_TF32 ? plain_p : rounded_p;
  const float plain_difference = plain_dp * (float)rescale - terms->plain_delta;
  const float plain = kept_p * plain_difference;
  const float plain_ds = ft_round_to_dtype(r->dtype, plain * (float)of_plain.slope);
  const double exact = p * difference;
  const double p_size = fmax(p, normal) * wobble;
  const double size = p_size * unit;
  return (struct pair){
      .ds = exact * scored.slope,
      .ds_size = fmax(size * fmax(fabs(scored.slope), LEAST_SLOPE), normal),
      .ds_subnormal = subnormal_weight(problem, p * scored.slope) * fabs(difference),
      .p = kept ? p : 0,
      .p_size = kept ? p_size : 0,
      .plain_ds = plain_ds,
      .weighing =
          weighed_ds(problem, rounded_p, plain_difference, (float)of_plain.slope, plain_ds) -
          plain_ds,
      .plain_p = kept ? rounded_p : 0,
      .difference = difference,
      .unit = unit,
      .normal = normal,
      .wobble = wobble,
      .by_score = {.exact = exact, .size = size, .plain = plain}};
}

static struct pair pair_of(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                           const struct ft_query_terms *terms, const struct operands *query,
                           const struct operands *key, int64_t j, bool kept) {
  struct pair pair = untied_pair(problem, scorer, terms, query, key, j, kept);
  add_ties_of(scorer, terms, kept, &pair);
  return pair;
}

void ft_score_gradients_of(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                           const struct ft_query_terms *terms, struct ft_row row,
                           ft_take_score_gradient *take, void *payload) {
  const struct ft_request *r = &problem->request;
  struct operands query, key;
  if (!ft_row_exists(problem, row)) return;
  load_query(&query, problem, row);
  ft_scorer_enter(scorer, row);
  const struct ft_interval keys = ft_row_keys(problem, row);
  for (int64_t j = keys.begin; j < keys.end; j++) {
    if (!sees(problem, row, j)) continue;
    load_key(&key, problem, row, j);
    const struct ft_query_terms *const own = &terms[query_index(r, row)];
    const struct pair pair =
        pair_of(problem, scorer, own, &query, &key, j, ft_row_keeps(problem, row, j));
    if (pair.by_score.size > 0 || pair.others > 0) take(payload, &pair.by_score);
    for (int n = 1; n <= pair.others; n++) {
      const struct ft_scored scored = ft_scorer_other(scorer, n);
      const double p = p_of(&scored, own->lse);
      take(payload,
           &(struct ft_score_gradient){.exact = p > 0 ? p * pair.difference : 0,
                                       .size = fmax(p, pair.normal) * pair.wobble * pair.unit,
                                       .other = n});
    }
  }
}

/* ---- sums ---- */

struct sums {
  double exact[FT_REFERENCE_DIM], squares[FT_REFERENCE_DIM];
  double subnormal[FT_REFERENCE_DIM]; /* squares, too */
  double ties[FT_REFERENCE_DIM];
  float plain[FT_REFERENCE_DIM], weighing[FT_REFERENCE_DIM];
};

/* dim is a multiple of 8. The lanes let the compiler use vector registers. */
static void add(struct sums *restrict sums, const float *restrict row,
                const float *restrict rounded, int dim, double exact, double size, float plain) {
  for (int d = 0; d < dim; d += 8) {
    for (int lane = 0; lane < 8; lane++) {
      const double value = (double)row[d + lane];
      sums->exact[d + lane] += exact * value;
      sums->squares[d + lane] += size * value * size * value;
      sums->plain[d + lane] += plain * rounded[d + lane];
    }
  }
}

static void add_weighing(struct sums *sums, const float *rounded, int dim, float weighing) {
  for (int d = 0; weighing != 0 && d < dim; d++) sums->weighing[d] += weighing * rounded[d];
}

static void add_subnormal(struct sums *sums, const float *row, int dim, double size) {
  if (size == 0) return;
  for (int d = 0; d < dim; d++) {
    const double lost = size * (double)row[d];
    sums->subnormal[d] += lost * lost;
  }
}

static void add_ties(struct sums *sums, const float *row, int dim, double moved) {
  for (int d = 0; moved != 0 && d < dim; d++) sums->ties[d] += moved * fabs((double)row[d]);
}

static void finish(const struct sums *sums, enum ft_dtype dtype, int dim, double scale,
                   struct ft_gradient_row *row) {
  row->yardstick = row->subnormal = row->ties = 0;
  for (int d = 0; d < dim; d++) {
    row->exact[d] = sums->exact[d] * scale;
    const float plain = sums->plain[d] * (float)scale, weighing = sums->weighing[d] * (float)scale;
    const double without = (double)ft_round_to_dtype(dtype, plain);
    const double with = (double)ft_round_to_dtype(dtype, plain + weighing);
    const bool is_worse = fabs(with - row->exact[d]) > fabs(without - row->exact[d]);
    row->plain[d] = is_worse ? with : without;
    row->yardstick = fmax(row->yardstick, sqrt(sums->squares[d]) * scale);
    row->subnormal = fmax(row->subnormal, sqrt(sums->subnormal[d]) * scale);
    row->ties = fmax(row->ties, sums->ties[d] * scale);
  }
}

void ft_query_gradient(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                       const struct ft_query_terms *terms, struct ft_row row,
                       struct ft_gradient_row *dq) {
  const struct ft_request *r = &problem->request;
  const struct ft_query_terms *own = &terms[query_index(r, row)];
  struct operands query, key;
  struct sums sums = {0};
  load_query(&query, problem, row);
  const struct ft_interval keys = ft_row_keys(problem, row);
  *dq = (struct ft_gradient_row){.yardstick = 0};
  ft_scorer_enter(scorer, row);
  for (int64_t j = keys.begin; j < keys.end; j++) {
    if (!sees(problem, row, j)) continue;
    load_key(&key, problem, row, j);
    const struct pair pair =
        pair_of(problem, scorer, own, &query, &key, j, ft_row_keeps(problem, row, j));
    add(&sums, key.first, key.rounded_first, r->head_dim, pair.ds, pair.ds_size, pair.plain_ds);
    add_weighing(&sums, key.rounded_first, r->head_dim, pair.weighing);
    add_subnormal(&sums, key.first, r->head_dim, pair.ds_subnormal);
    add_ties(&sums, key.first, r->head_dim, pair.ds_ties);
  }
  finish(&sums, ft_output_dtype(r), r->head_dim, problem->scale, dq);
}

void ft_key_gradients(const struct ft_host_problem *problem, struct ft_scorer *scorer,
                      const struct ft_query_terms *terms, struct ft_row key_row,
                      struct ft_gradient_row *dk, struct ft_gradient_row *dv) {
  const struct ft_request *r = &problem->request;
  const struct ft_visibility visibility = ft_row_visibility(problem, key_row.batch);
  const struct ft_interval queries = ft_queries_of(&visibility, key_row.i);
  const int group = r->heads_q / r->heads_kv;
  struct operands query, key;
  struct sums sums_k = {0}, sums_v = {0};
  struct ft_row row = {.batch = key_row.batch, .head = key_row.head * group};
  load_key(&key, problem, row, key_row.i);
  *dk = *dv = (struct ft_gradient_row){.yardstick = 0};
  for (int n = 0; n < group; n++, row.head++) {
    for (row.i = queries.begin; row.i < queries.end; row.i++) {
      if (!sees(problem, row, key_row.i)) continue;
      load_query(&query, problem, row);
      ft_scorer_enter(scorer, row);
      const struct pair pair = pair_of(problem, scorer, &terms[query_index(r, row)], &query, &key,
                                       key_row.i, ft_row_keeps(problem, row, key_row.i));
      add(&sums_k, query.first, query.rounded_first, r->head_dim, pair.ds, pair.ds_size,
          pair.plain_ds);
      add_weighing(&sums_k, query.rounded_first, r->head_dim, pair.weighing);
      add_subnormal(&sums_k, query.first, r->head_dim, pair.ds_subnormal);
      add_ties(&sums_k, query.first, r->head_dim, pair.ds_ties);
      add_ties(&sums_v, query.second, r->head_dim_v, pair.p_ties);
      add(&sums_v, query.second, query.rounded_second, r->head_dim_v, pair.p, pair.p_size,
          pair.plain_p);
    }
  }
  finish(&sums_k, ft_output_dtype(r), r->head_dim, problem->scale, dk);
  finish(&sums_v, ft_output_dtype(r), r->head_dim_v, ft_dropout_rescale(problem), dv);
}
