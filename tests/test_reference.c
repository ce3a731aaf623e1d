/* test_reference.c: the yardstick itself: formats, float64 attention, allowances, verdicts.
 * in -> out: all 16-bit patterns, random problems (seed printed) -> Check suite.
 */
#include "tests/generator_cases.h"
#include "tests/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tests/fresh_seed.h"
#include "tuner/verify/answers.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/philox.h"
#include "tuner/verify/reference.h"

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static double random_normal(uint64_t *state) { /* of 12 uniforms: good enough as an input */
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += (double)(next_random(state) >> 11) * 0x1p-53;
  return sum;
}

/* ---- formats ---- */

START_TEST(every_pattern_survives_a_round_trip) {
  const enum ft_dtype dtype = _i ? FT_BF16 : FT_FP16;
  for (unsigned bits = 0; bits <= 0xFFFF; bits++) {
    const double value = ft_from_dtype(dtype, (uint16_t)bits);
    const unsigned back = ft_to_dtype(dtype, value);
    if (isnan(value)) {
      ck_assert_msg(isnan(ft_from_dtype(dtype, (uint16_t)back)), "pattern %04x lost its NaN", bits);
    } else {
      ck_assert_msg(back == bits, "pattern %04x came back as %04x", bits, back);
    }
    float wide;
    const uint16_t pattern = (uint16_t)bits;
    ft_widen(dtype, &pattern, &wide, 1);
    ck_assert_msg(isnan(value) ? isnan(wide)
                               : (double)wide == value && !signbit(wide) == !signbit(value),
                  "pattern %04x widened to %g, not %g", bits, (double)wide, value);
  }
}
END_TEST

START_TEST(known_patterns) {
  ck_assert_int_eq(ft_to_dtype(FT_FP16, 1), 0x3C00);
  ck_assert_int_eq(ft_to_dtype(FT_FP16, -2), 0xC000);
  ck_assert_int_eq(ft_to_dtype(FT_FP16, 65504), 0x7BFF);
  ck_assert_int_eq(ft_to_dtype(FT_FP16, 65519.99), 0x7BFF);
  ck_assert_int_eq(ft_to_dtype(FT_FP16, 65520), 0x7C00);
  ck_assert_int_eq(ft_to_dtype(FT_FP16, 0x1p-24), 0x0001);
  ck_assert_int_eq(ft_to_dtype(FT_FP16, 0x1p-25), 0x0000); /* a tie: to even */
  ck_assert_int_eq(ft_to_dtype(FT_FP16, 0x1.8p-24), 0x0002);
  ck_assert_int_eq(ft_to_dtype(FT_FP16, -1e300), 0xFC00);
  ck_assert_int_eq(ft_to_dtype(FT_BF16, 1), 0x3F80);
  ck_assert_int_eq(ft_to_dtype(FT_BF16, 3.140625), 0x4049);
  ck_assert_int_eq(ft_to_dtype(FT_BF16, 0x1.01p0), 0x3F80); /* a tie: to even, down */
  ck_assert_int_eq(ft_to_dtype(FT_BF16, 0x1.03p0), 0x3F82); /* a tie: to even, up */
  ck_assert_int_eq(ft_to_dtype(FT_BF16, 1e300), 0x7F80);
  ck_assert_int_eq(ft_to_dtype(FT_BF16, -0.0), 0x8000);
}
END_TEST

/* Nearest means: no neighbour is nearer, and of two equally near the even one is taken. */
START_TEST(rounding_takes_the_nearest) {
  const enum ft_dtype dtype = _i ? FT_BF16 : FT_FP16;
  const uint64_t seed = fresh_seed();
  uint64_t state = seed;
  for (int trial = 0; trial < 200000; trial++) {
    const int exponent = (int)(next_random(&state) % 44) - 30;
    double value = ldexp((double)(next_random(&state) >> 11), exponent - 53);
    if (trial % 3 == 0) value = (double)(float)ldexp(rint(ldexp(value, 40)), -40);
    const unsigned bits = ft_to_dtype(dtype, value);
    const double distance = fabs(ft_from_dtype(dtype, (uint16_t)bits) - value);
    const double above = fabs(ft_from_dtype(dtype, (uint16_t)(bits + 1)) - value);
    const double below = bits ? fabs(ft_from_dtype(dtype, (uint16_t)(bits - 1)) - value) : INFINITY;
    ck_assert_msg(distance <= above && distance <= below, "seed %llu: %a is not nearest to %04x",
                  (unsigned long long)seed, value, bits);
    if (distance == above || distance == below)
      ck_assert_msg(bits % 2 == 0, "%a: tie to odd", value);

    const float narrow = (float)value;
    const float rounded = ft_round_to_dtype(dtype, trial % 2 ? narrow : -narrow);
    const double expected = ft_from_dtype(dtype, ft_to_dtype(dtype, (double)narrow));
    ck_assert_msg((double)rounded == (trial % 2 ? expected : -expected),
                  "seed %llu: %a became %a, not %a", (unsigned long long)seed, (double)narrow,
                  (double)rounded, expected);
  }
}
END_TEST

/* ---- a random problem and a naive second opinion ---- */

struct sample {
  struct ft_host_problem problem;
  uint16_t *q, *k, *v;
  uint8_t *blocks;
  uint64_t seed;
};

static uint16_t *random_tensor(enum ft_dtype dtype, int64_t count, uint64_t *state) {
  uint16_t *data = malloc((size_t)count * sizeof *data);
  ck_assert_ptr_nonnull(data);
  for (int64_t n = 0; n < count; n++) data[n] = ft_to_dtype(dtype, random_normal(state));
  return data;
}

static struct sample sample_make(const char *text) {
  struct sample sample = {.seed = fresh_seed()};
  uint64_t state = sample.seed;
  struct ft_host_problem *problem = &sample.problem;
  struct ft_request *request = &problem->request;
  ck_assert_msg(ft_request_parse(request, text) == FT_OK, "%s: %s", text, ft_detail());
  const int64_t rows_q = request->batch * request->seqlen_q * request->heads_q;
  const int64_t rows_k = request->batch * request->seqlen_k * request->heads_kv;
  problem->q = sample.q = random_tensor(request->dtype, rows_q * request->head_dim, &state);
  problem->k = sample.k = random_tensor(request->dtype, rows_k * request->head_dim, &state);
  problem->v = sample.v = random_tensor(request->dtype, rows_k * request->head_dim_v, &state);
  problem->scale = (double)(float)(1 / sqrt(request->head_dim));
  problem->dropout = 0.2;
  problem->seed = next_random(&state);
  problem->offset = next_random(&state);
  if (request->mask_rows > 0) {
    const int64_t rows = (request->seqlen_q + request->mask_rows - 1) / request->mask_rows;
    const int64_t cols = (request->seqlen_k + request->mask_cols - 1) / request->mask_cols;
    const int64_t count = request->batch * request->heads_q * rows * cols;
    problem->mask_batch = (int)request->batch;
    problem->mask_heads = request->heads_q;
    problem->blocks = sample.blocks = malloc((size_t)count);
    for (int64_t n = 0; n < count; n++) sample.blocks[n] = next_random(&state) % 2;
    memset(sample.blocks, 0, (size_t)cols); /* the first rows see nothing */
    sample.blocks[count - 1] = 1;           /* the last ones something */
  }
  return sample;
}

static void sample_free(struct sample *sample) {
  free(sample->q);
  free(sample->k);
  free(sample->v);
  free(sample->blocks);
}

static bool naively_visible(const struct ft_host_problem *problem, struct ft_row row, int64_t j) {
  const struct ft_request *request = &problem->request;
  if (!rule_lets_see(request, row.i, j)) return false;
  if (!problem->blocks) return true;
  const int64_t rows = (request->seqlen_q + request->mask_rows - 1) / request->mask_rows;
  const int64_t cols = (request->seqlen_k + request->mask_cols - 1) / request->mask_cols;
  const int64_t list =
      (row.batch * problem->mask_heads + row.head) * rows + row.i / request->mask_rows;
  return problem->blocks[list * cols + j / request->mask_cols] != 0;
}

/* Softmax straight from the definition, no maximum, no blocks. */
static void naive_row(const struct ft_host_problem *problem, struct ft_row row, double *o,
                      double *lse) {
  const struct ft_request *request = &problem->request;
  const int d = request->head_dim, dv = request->head_dim_v;
  const int kv_head = row.head / (request->heads_q / request->heads_kv);
  const int64_t q = ((row.batch * request->seqlen_q + row.i) * request->heads_q + row.head) * d;
  const uint32_t threshold = ft_dropout_threshold(problem->dropout);
  double sum = 0;
  memset(o, 0, (size_t)dv * sizeof *o);
  for (int64_t j = 0; j < request->seqlen_k; j++) {
    if (!naively_visible(problem, row, j)) continue;
    const int64_t kv = (row.batch * request->seqlen_k + j) * request->heads_kv + kv_head;
    double s = 0;
    for (int n = 0; n < d; n++) {
      s += ft_number(request->dtype, problem->q, q + n) *
           ft_number(request->dtype, problem->k, kv * d + n);
    }
    const double p = exp(s * problem->scale);
    sum += p;
    if (request->dropout && !ft_dropout_keeps(problem->seed, problem->offset, row.batch,
                                              request->heads_q, row.head, row.i, j, threshold)) {
      continue;
    }
    for (int n = 0; n < dv; n++) o[n] += p * ft_number(request->dtype, problem->v, kv * dv + n);
  }
  const double keep = request->dropout ? 1 - threshold / 16384.0 : 1;
  for (int n = 0; n < dv; n++) o[n] = sum > 0 ? o[n] / (sum * keep) : 0;
  *lse = sum > 0 ? log(sum) : -INFINITY;
}

static const char *const requests[] = {
    "forward fp16 d64 nq33 nk65",
    "forward bf16 d64 nq33 nk65 b2 hq4 hkv2",
    "forward fp16 d72 dv40 nq40 nk23 hq2 hkv1 causal",
    "forward bf16 d24 dv256 nq23 nk40 hq2 hkv2 causal=top-left",
    "forward bf16 d32 nq40 nk37 hq2 hkv1 window@7,3",
    "forward fp16 d16 nq50 nk30 hq2 hkv2 causal window@5,-1", /* rows 0..19 see nothing */
    "forward bf16 d64 nq70 nk90 hq2 hkv1 dropout",
    "forward fp16 d128 nq70 nk90 b2 hq2 hkv1 mask=16x32@0.5",
    "forward bf16 d128 nq70 nk60 b2 hq2 hkv2 causal dropout mask=32x16@0.5",
};
enum { REQUESTS = sizeof requests / sizeof requests[0] };

/* Every row of a request: batch outermost, then head, then i. */
static struct ft_row row_at(const struct ft_request *request, int64_t index) {
  return (struct ft_row){.i = index % request->seqlen_q,
                         .head = (int)(index / request->seqlen_q % request->heads_q),
                         .batch = index / request->seqlen_q / request->heads_q};
}

START_TEST(rows_agree_with_the_definition) {
  struct sample sample = sample_make(requests[_i]);
  const struct ft_request *request = &sample.problem.request;
  const int64_t rows = request->batch * request->heads_q * request->seqlen_q;
  for (int64_t n = 0; n < rows; n++) {
    const struct ft_row row = row_at(request, n);
    double o[256], lse, naive[256], naive_lse, plain[256], plain_lse;
    ft_reference_row(&sample.problem, row, o, &lse);
    ft_plain_row(&sample.problem, row, plain, &plain_lse);
    naive_row(&sample.problem, row, naive, &naive_lse);
    if (isinf(naive_lse)) {
      ck_assert(lse == -INFINITY && plain_lse == -INFINITY);
    } else {
      ck_assert_double_eq_tol(lse, naive_lse, 1e-12);
      ck_assert_double_eq_tol(plain_lse, naive_lse, 1e-5);
    }
    for (int d = 0; d < request->head_dim_v; d++) {
      ck_assert_msg(fabs(o[d] - naive[d]) <= 1e-12, "%s, seed %llu, row %lld: %g, not %g",
                    requests[_i], (unsigned long long)sample.seed, (long long)n, o[d], naive[d]);
      ck_assert_double_eq_tol(plain[d], naive[d], request->dtype == FT_FP16 ? 5e-3 : 4e-2);
      ck_assert(isinf(naive_lse) ? o[d] == 0 && plain[d] == 0 : true);
    }
  }
  sample_free(&sample);
}
END_TEST

/* ---- verdicts ---- */

/* Outputs of all rows as the plain computation gives them. */
struct outputs {
  int count;
  struct ft_row *rows;
  uint16_t *o;
  float *lse;
};

static struct outputs outputs_make(const struct sample *sample) {
  const struct ft_request *request = &sample->problem.request;
  const int count = (int)(request->batch * request->heads_q * request->seqlen_q);
  const int dim = request->head_dim_v;
  struct outputs outputs = {.count = count,
                            .rows = malloc((size_t)count * sizeof(struct ft_row)),
                            .o = malloc((size_t)count * (size_t)dim * sizeof(uint16_t)),
                            .lse = malloc((size_t)count * sizeof(float))};
  for (int n = 0; n < count; n++) {
    double o[256], lse;
    outputs.rows[n] = row_at(request, n);
    ft_plain_row(&sample->problem, outputs.rows[n], o, &lse);
    for (int d = 0; d < dim; d++) outputs.o[n * dim + d] = ft_to_dtype(request->dtype, o[d]);
    outputs.lse[n] = (float)lse;
  }
  return outputs;
}

static void outputs_free(struct outputs *outputs) {
  free(outputs->rows);
  free(outputs->o);
  free(outputs->lse);
}

static double ratio_of(const struct sample *sample, const struct outputs *outputs) {
  struct ft_comparison comparison;
  ck_assert_int_eq(ft_reference_compare(&comparison, &sample->problem, outputs->rows,
                                        outputs->count, outputs->o, outputs->lse, 2),
                   FT_OK);
  return comparison.error_ratio;
}

START_TEST(the_plain_result_passes) {
  struct sample sample = sample_make(requests[_i]);
  struct outputs outputs = outputs_make(&sample);
  const double ratio = ratio_of(&sample, &outputs);
  ck_assert_msg(ratio <= 0.5 && ratio > 0, "%s, seed %llu: ratio %g", requests[_i],
                (unsigned long long)sample.seed, ratio);
  outputs_free(&outputs);
  sample_free(&sample);
}
END_TEST

/* Each damage is one a wrong kernel would do; each must be seen in every request. */
START_TEST(damage_fails) {
  struct sample sample = sample_make(requests[_i]);
  const struct ft_request *request = &sample.problem.request;
  const int dim = request->head_dim_v;
  struct outputs outputs = outputs_make(&sample);
  const int last = outputs.count - 1; /* sees keys in every request */
  uint16_t *o = outputs.o + (size_t)last * (size_t)dim;

  const uint16_t kept = o[dim - 1];
  o[dim - 1] = 0xFFFF;
  ck_assert(isinf(ratio_of(&sample, &outputs)));
  o[dim - 1] = ft_to_dtype(request->dtype, INFINITY);
  ck_assert(isinf(ratio_of(&sample, &outputs)));
  double largest = 0;
  for (int d = 0; d < dim; d++) largest = fmax(largest, fabs(ft_from_dtype(request->dtype, o[d])));
  o[dim - 1] = ft_to_dtype(request->dtype, ft_from_dtype(request->dtype, kept) + largest * 0.1);
  ck_assert_double_gt(ratio_of(&sample, &outputs), 1);
  o[dim - 1] = kept;

  outputs.lse[last] += 1e-3f;
  ck_assert_double_gt(ratio_of(&sample, &outputs), 1);
  outputs.lse[last] = NAN;
  ck_assert(isinf(ratio_of(&sample, &outputs)));
  outputs.lse[last] = -INFINITY;
  ck_assert(isinf(ratio_of(&sample, &outputs)));
  outputs_free(&outputs);
  sample_free(&sample);
}
END_TEST

START_TEST(a_row_that_sees_nothing_must_be_exact) {
  struct sample sample =
      sample_make("forward bf16 d64 nq40 nk10 causal"); /* rows 0..29 see nothing */
  struct outputs outputs = outputs_make(&sample);
  ck_assert_double_le(ratio_of(&sample, &outputs), 1);
  outputs.o[29 * 64 + 5] = 0x8000; /* -0 is 0 */
  ck_assert_double_le(ratio_of(&sample, &outputs), 1);
  outputs.o[29 * 64 + 5] = 0x0001;
  ck_assert(isinf(ratio_of(&sample, &outputs)));
  outputs.o[29 * 64 + 5] = 0;
  outputs.lse[29] = -1e30f;
  ck_assert(isinf(ratio_of(&sample, &outputs)));
  outputs_free(&outputs);
  sample_free(&sample);
}
END_TEST

/* A kernel that leaves out one average key of 4096 is off by less than the rounding of O, but not
 * in LSE. The key is made average, of score 0: one that happens to score far below the others
 * weighs too little to be missed. */
START_TEST(one_lost_key_is_found) {
  struct sample sample = sample_make("forward bf16 d64 nq1 nk4096");
  memset(sample.k + (size_t)4095 * 64, 0, 64 * sizeof *sample.k);
  struct outputs outputs = outputs_make(&sample);
  ck_assert_double_le(ratio_of(&sample, &outputs), 1);
  sample.problem.request.seqlen_k = 4095;
  double o[64], lse;
  ft_plain_row(&sample.problem, outputs.rows[0], o, &lse);
  sample.problem.request.seqlen_k = 4096;
  outputs.lse[0] = (float)lse;
  ck_assert_double_gt(ratio_of(&sample, &outputs), 1);
  outputs_free(&outputs);
  sample_free(&sample);
}
END_TEST

START_TEST(threads_do_not_change_the_verdict) {
  struct sample sample = sample_make(requests[6]);
  struct outputs outputs = outputs_make(&sample);
  struct ft_comparison one, four;
  ck_assert_int_eq(ft_reference_compare(&one, &sample.problem, outputs.rows, outputs.count,
                                        outputs.o, outputs.lse, 1),
                   FT_OK);
  ck_assert_int_eq(ft_reference_compare(&four, &sample.problem, outputs.rows, outputs.count,
                                        outputs.o, outputs.lse, 4),
                   FT_OK);
  ck_assert(one.error_ratio == four.error_ratio && one.o_allowed == four.o_allowed);
  ck_assert_str_eq(one.worst, four.worst);
  outputs_free(&outputs);
  sample_free(&sample);
}
END_TEST

Suite *make_reference_suite(void) {
  Suite *suite = suite_create("reference");
  TCase *formats = tcase_create("formats");
  tcase_add_loop_test(formats, every_pattern_survives_a_round_trip, 0, 2);
  tcase_add_test(formats, known_patterns);
  tcase_add_loop_test(formats, rounding_takes_the_nearest, 0, 2);
  suite_add_tcase(suite, formats);
  TCase *rows = tcase_create("rows");
  tcase_set_timeout(rows, 30);
  tcase_add_loop_test(rows, rows_agree_with_the_definition, 0, REQUESTS);
  tcase_add_loop_test(rows, the_plain_result_passes, 0, REQUESTS);
  tcase_add_loop_test(rows, damage_fails, 0, REQUESTS);
  tcase_add_test(rows, a_row_that_sees_nothing_must_be_exact);
  tcase_add_test(rows, one_lost_key_is_found);
  tcase_add_test(rows, threads_do_not_change_the_verdict);
  suite_add_tcase(suite, rows);
  return suite;
}
