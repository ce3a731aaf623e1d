/* gpu_compare.c: random inputs of a call, and how far two outputs may be apart.
 * in -> out: request -> inputs; two outputs -> differences, assertions. */
#include "tests/gpu/gpu_compare.h"
#include "tuner/verify/halves.h"

#include <math.h>
#include <stdlib.h>

struct gpu_inputs gpu_inputs_make(struct gpu_call *call, uint64_t salt) {
  const struct ft_request *const r = &call->request;
  const struct gpu_inputs inputs = {
      .q = gpu_normal(r->dtype, gpu_count_q(r), gpu_seed(3 * salt)),
      .k = gpu_normal(r->dtype, gpu_count_k(r), gpu_seed(3 * salt + 1)),
      .v = gpu_uniform(r->dtype, gpu_count_v(r), gpu_seed(3 * salt + 2))};
  call->q = inputs.q;
  call->k = inputs.k;
  call->v = inputs.v;
  call->seed = gpu_seed(salt + 1000);
  call->offset = gpu_seed(salt + 2000);
  return inputs;
}

void gpu_inputs_free(struct gpu_inputs *inputs) {
  free(inputs->q);
  free(inputs->k);
  free(inputs->v);
}

double gpu_value(const struct gpu_output *output, enum ft_dtype dtype, size_t n) {
  return ft_from_dtype(dtype, output->o[n]);
}

/* Written so that NaN counts as the largest. */
static double larger(double largest, double difference) {
  if (difference <= largest) return largest;
  return isnan(difference) ? INFINITY : difference;
}

double gpu_o_difference(const struct gpu_output *a, const struct gpu_output *b,
                        enum ft_dtype dtype) {
  double largest = 0;
  ck_assert_uint_eq(a->o_count, b->o_count);
  for (size_t n = 0; n < a->o_count; n++)
    largest = larger(largest, fabs(gpu_value(a, dtype, n) - gpu_value(b, dtype, n)));
  return largest;
}

double gpu_lse_difference(const struct gpu_output *a, const struct gpu_output *b) {
  double largest = 0;
  ck_assert_uint_eq(a->lse_count, b->lse_count);
  for (size_t n = 0; n < a->lse_count; n++) {
    if (a->lse[n] == b->lse[n]) continue; /* of infinities the difference is NaN */
    largest = larger(largest, fabs((double)a->lse[n] - (double)b->lse[n]));
  }
  return largest;
}

void gpu_assert_agree(const struct gpu_output *a, const struct gpu_output *b, enum ft_dtype dtype,
                      double enlarged) {
  gpu_assert_at_most(gpu_o_difference(a, b, dtype),
                     enlarged * (4 * gpu_roundoff(dtype) + GPU_SLACK));
  gpu_assert_at_most(gpu_lse_difference(a, b), GPU_LSE_BOUND);
}

void gpu_assert_same_bits(const struct gpu_output *a, const struct gpu_output *b) {
  ck_assert_msg(gpu_output_equal(a, b), "bits differ (FATUNE_TEST_SEED=%llu)",
                (unsigned long long)gpu_lab()->seed);
}
