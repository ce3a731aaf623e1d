/* test_gpu_properties.c: what holds for attention whatever the reference says: V, keys, heads.
 * in -> out: pairs of calls that must agree -> equal bits, or agreement within derived bounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_compare.h"
#include "tests/gpu/gpu_suites.h"
#include "tuner/verify/halves.h"

/* ---- V ---- */

static const char *const plain_requests[] = {
    "forward bf16 d64 hq4 hkv2 b2 nq333 nk517", "forward fp16 d128 hq2 nq300 causal",
    "forward bf16 d72 dv40 hq3 nq77 nk450 causal=top-left", "forward fp16 d256 hq2 nq129 nk1000",
    "forward bf16 d128 hq8 hkv1 nq1 nk777"};

START_TEST(v_of_ones_gives_ones) {
  struct gpu_call call = {.request = gpu_request(plain_requests[_i])};
  const enum ft_dtype dtype = call.request.dtype;
  struct gpu_inputs inputs = gpu_inputs_make(&call, 10 + (uint64_t)_i);
  uint16_t *const ones = gpu_constant(dtype, gpu_count_v(&call.request), 1);
  struct gpu_output output;
  call.v = ones;
  gpu_call_run(&call, &output);
  double largest = 0;
  for (size_t n = 0; n < output.o_count; n++)
    largest = fmax(largest, fabs(gpu_value(&output, dtype, n) - 1));
  gpu_assert_at_most(largest, 2 * gpu_roundoff(dtype)); /* of P, of O */
  gpu_output_free(&output);
  free(ones);
  gpu_inputs_free(&inputs);
}
END_TEST

/* Small integers, so that V1 + 2 V2 is exact. */
static uint16_t *integers(enum ft_dtype dtype, int64_t count, uint64_t seed) {
  uint16_t *const made = gpu_constant(dtype, count, 0);
  for (int64_t n = 0; n < count; n++) made[n] = ft_to_dtype(dtype, gpu_random_below(&seed, 9) - 4);
  return made;
}

START_TEST(linear_in_v) {
  struct gpu_call call = {.request = gpu_request(plain_requests[_i])};
  const enum ft_dtype dtype = call.request.dtype;
  const int64_t count = gpu_count_v(&call.request);
  struct gpu_inputs inputs = gpu_inputs_make(&call, 20 + (uint64_t)_i);
  uint16_t *const one = integers(dtype, count, gpu_seed(31)), *const two = integers(dtype, count,
                                                                                    gpu_seed(32));
  uint16_t *const both = gpu_constant(dtype, count, 0);
  for (int64_t n = 0; n < count; n++)
    both[n] = ft_to_dtype(dtype, ft_from_dtype(dtype, one[n]) + 2 * ft_from_dtype(dtype, two[n]));
  struct gpu_output o1, o2, o12;
  call.v = one;
  gpu_call_run(&call, &o1);
  call.v = two;
  gpu_call_run(&call, &o2);
  call.v = both;
  gpu_call_run(&call, &o12);
  const double u = gpu_roundoff(dtype);
  for (size_t n = 0; n < o12.o_count; n++) {
    const double a = gpu_value(&o1, dtype, n), b = gpu_value(&o2, dtype, n);
    const double c = gpu_value(&o12, dtype, n);
    /* P is the same three times: only the three outputs are rounded. fp32 sums: |V| is up to 12. */
    gpu_assert_at_most(fabs(c - (a + 2 * b)),
                       1.01 * u * (fabs(a) + 2 * fabs(b) + fabs(c)) + 12 * GPU_SLACK);
  }
  gpu_output_free(&o1), gpu_output_free(&o2), gpu_output_free(&o12);
  free(one), free(two), free(both);
  gpu_inputs_free(&inputs);
}
END_TEST

/* ---- keys ---- */

/* [batch, keys, rest] -> the keys from `from` on, or in another order. */
static uint16_t *take_keys(const uint16_t *values, int64_t batch, int64_t keys, int64_t rest,
                           const int64_t *order, int64_t count) {
  uint16_t *const taken = malloc((size_t)(batch * count * rest) * sizeof *taken);
  ck_assert_ptr_nonnull(taken);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t n = 0; n < count; n++)
      memcpy(taken + (b * count + n) * rest, values + (b * keys + order[n]) * rest,
             (size_t)rest * sizeof *taken);
  return taken;
}

static void run_on_keys(const struct gpu_call *whole, const int64_t *order, int64_t count,
                        struct gpu_output *output) {
  struct gpu_call part = *whole;
  const struct ft_request *const r = &whole->request;
  const int64_t k_rest = r->heads_kv * r->head_dim, v_rest = r->heads_kv * r->head_dim_v;
  uint16_t *const k = take_keys(whole->k, r->batch, r->seqlen_k, k_rest, order, count);
  uint16_t *const v = take_keys(whole->v, r->batch, r->seqlen_k, v_rest, order, count);
  part.request.seqlen_k = count;
  part.k = k;
  part.v = v;
  gpu_call_run(&part, output);
  free(k);
  free(v);
}

static void shuffle(int64_t *order, int64_t count, uint64_t seed) {
  for (int64_t n = 0; n < count; n++) order[n] = n;
  for (int64_t n = count - 1; n > 0; n--) {
    const int64_t other = (int64_t)(gpu_random(&seed) % (uint64_t)(n + 1)), kept = order[n];
    order[n] = order[other];
    order[other] = kept;
  }
}

enum { KEYS = 517 };

START_TEST(order_of_keys_does_not_matter) {
  struct gpu_call call = {.request = gpu_request("forward bf16 d96 hq4 hkv2 b2 nq100 nk517")};
  struct gpu_inputs inputs = gpu_inputs_make(&call, 40);
  int64_t order[KEYS];
  struct gpu_output straight, shuffled;
  shuffle(order, KEYS, gpu_seed(41));
  gpu_call_run(&call, &straight);
  run_on_keys(&call, order, KEYS, &shuffled);
  gpu_assert_agree(&straight, &shuffled, FT_BF16, 1);
  gpu_output_free(&straight), gpu_output_free(&shuffled);
  gpu_inputs_free(&inputs);
}
END_TEST

/* O = sum of exp(lse_i - lse) O_i over the parts, in place of the first part. */
static void merge(struct gpu_output *a, const struct gpu_output *b, const struct ft_request *r,
                  double *o) {
  for (int64_t batch = 0; batch < r->batch; batch++)
    for (int64_t i = 0; i < r->seqlen_q; i++)
      for (int head = 0; head < r->heads_q; head++) {
        const int64_t row = (batch * r->heads_q + head) * r->seqlen_q + i;
        const double la = (double)a->lse[row], lb = (double)b->lse[row];
        const double most = fmax(la, lb), lse = most + log(exp(la - most) + exp(lb - most));
        const int64_t at = ((batch * r->seqlen_q + i) * r->heads_q + head) * r->head_dim_v;
        for (int64_t c = at; c < at + r->head_dim_v; c++)
          o[c] = exp(la - lse) * gpu_value(a, r->dtype, (size_t)c) +
                 exp(lb - lse) * gpu_value(b, r->dtype, (size_t)c);
        a->lse[row] = (float)lse;
      }
}

START_TEST(split_keys_merge_to_the_whole) {
  struct gpu_call call = {.request = gpu_request("forward fp16 d64 hq4 hkv4 b2 nq200 nk517")};
  struct gpu_inputs inputs = gpu_inputs_make(&call, 50);
  int64_t order[KEYS];
  struct gpu_output whole, first, second;
  for (int64_t n = 0; n < KEYS; n++) order[n] = n;
  uint64_t state = gpu_seed(51);
  const int64_t cut = 1 + gpu_random_below(&state, KEYS - 1);
  gpu_call_run(&call, &whole);
  run_on_keys(&call, order, cut, &first);
  run_on_keys(&call, order + cut, KEYS - cut, &second);
  double *const merged = malloc(whole.o_count * sizeof *merged);
  ck_assert_ptr_nonnull(merged);
  merge(&first, &second, &call.request, merged);
  double largest = 0;
  for (size_t n = 0; n < whole.o_count; n++)
    largest = fmax(largest, fabs(merged[n] - gpu_value(&whole, FT_FP16, n)));
  gpu_assert_at_most(largest, 4 * gpu_roundoff(FT_FP16) + GPU_SLACK);
  gpu_assert_at_most(gpu_lse_difference(&first, &whole), GPU_LSE_BOUND);
  free(merged);
  gpu_output_free(&whole), gpu_output_free(&first), gpu_output_free(&second);
  gpu_inputs_free(&inputs);
}
END_TEST

START_TEST(top_left_is_bottom_right_for_equal_lengths) {
  struct gpu_call call = {.request = gpu_request("forward bf16 d128 hq4 b2 nq391 causal"),
                          .config = GPU_LARGE_TILES};
  struct gpu_inputs inputs = gpu_inputs_make(&call, 60);
  struct gpu_output bottom_right, top_left;
  gpu_call_run(&call, &bottom_right);
  call.request.causal = FT_CAUSAL_TOP_LEFT;
  gpu_call_run(&call, &top_left);
  gpu_assert_same_bits(&bottom_right, &top_left);
  gpu_output_free(&bottom_right), gpu_output_free(&top_left);
  gpu_inputs_free(&inputs);
}
END_TEST

/* ---- heads and batch ---- */

/* [rows, heads, dim] -> [rows, heads * times, dim], head h from h / times. */
static uint16_t *repeat_heads(const uint16_t *values, int64_t rows, int heads, int dim, int times) {
  uint16_t *const made = malloc((size_t)(rows * heads * times * dim) * sizeof *made);
  ck_assert_ptr_nonnull(made);
  for (int64_t n = 0; n < rows * heads * times; n++)
    memcpy(made + n * dim, values + n / times * dim, (size_t)dim * sizeof *made);
  return made;
}

START_TEST(grouped_heads_are_repeated_heads) {
  struct gpu_call call = {.request = gpu_request("forward bf16 d64 hq8 hkv2 b2 nq200 nk300 causal"),
                          .config = GPU_LARGE_TILES};
  const struct ft_request *const r = &call.request;
  struct gpu_inputs inputs = gpu_inputs_make(&call, 70);
  const int64_t rows = r->batch * r->seqlen_k;
  uint16_t *const k = repeat_heads(call.k, rows, 2, r->head_dim, 4);
  uint16_t *const v = repeat_heads(call.v, rows, 2, r->head_dim_v, 4);
  struct gpu_output grouped, repeated;
  gpu_call_run(&call, &grouped);
  call.request.heads_kv = 8;
  call.k = k;
  call.v = v;
  gpu_call_run(&call, &repeated);
  gpu_assert_same_bits(&grouped, &repeated);
  gpu_output_free(&grouped), gpu_output_free(&repeated);
  free(k), free(v);
  gpu_inputs_free(&inputs);
}
END_TEST

/* Swaps the two halves of an array: the two batches. */
static void swap_halves(void *data, size_t bytes) {
  char *const halves = data, *const kept = malloc(bytes / 2);
  ck_assert_ptr_nonnull(kept);
  memcpy(kept, halves, bytes / 2);
  memmove(halves, halves + bytes / 2, bytes / 2);
  memcpy(halves + bytes / 2, kept, bytes / 2);
  free(kept);
}

START_TEST(order_of_batches_does_not_matter) {
  struct gpu_call call = {.request =
                              gpu_request("forward fp16 d80 hq4 hkv2 b2 nq190 nk260 causal")};
  const struct ft_request *const r = &call.request;
  struct gpu_inputs inputs = gpu_inputs_make(&call, 80);
  struct gpu_output straight, swapped;
  gpu_call_run(&call, &straight);
  swap_halves(inputs.q, (size_t)gpu_count_q(r) * 2);
  swap_halves(inputs.k, (size_t)gpu_count_k(r) * 2);
  swap_halves(inputs.v, (size_t)gpu_count_v(r) * 2);
  gpu_call_run(&call, &swapped);
  swap_halves(swapped.o, swapped.o_count * sizeof *swapped.o);
  swap_halves(swapped.lse, swapped.lse_count * sizeof *swapped.lse);
  gpu_assert_same_bits(&straight, &swapped);
  gpu_output_free(&straight), gpu_output_free(&swapped);
  gpu_inputs_free(&inputs);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

Suite *make_gpu_properties_suite(void) {
  Suite *const suite = suite_create("gpu_properties");
  TCase *const tests = tcase_create("properties");
  tcase_add_loop_test(tests, v_of_ones_gives_ones, 0, COUNT(plain_requests));
  tcase_add_loop_test(tests, linear_in_v, 0, COUNT(plain_requests));
  tcase_add_test(tests, order_of_keys_does_not_matter);
  tcase_add_test(tests, split_keys_merge_to_the_whole);
  tcase_add_test(tests, top_left_is_bottom_right_for_equal_lengths);
  tcase_add_test(tests, grouped_heads_are_repeated_heads);
  tcase_add_test(tests, order_of_batches_does_not_matter);
  suite_add_tcase(suite, tests);
  return suite;
}
