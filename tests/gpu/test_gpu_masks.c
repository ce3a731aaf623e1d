/* test_gpu_masks.c: what holds whatever the reference says: masks, dropout, determinism.
 * in -> out: pairs of calls that must agree -> equal bits, or agreement within derived bounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_compare.h"
#include "tests/gpu/gpu_suites.h"

/* ---- masks ---- */

enum { MASK_BLOCKS = 5 * 6 }; /* 64x64 over 300 x 380 */

START_TEST(mask_of_ones_is_dense) {
  struct gpu_call call = {.request = gpu_request("forward bf16 d64 hq4 b2 nq300 nk380 causal"),
                          .config = GPU_SMALL_TILES};
  struct gpu_inputs inputs = gpu_inputs_make(&call, 90);
  uint8_t blocks[MASK_BLOCKS];
  struct gpu_output dense, masked;
  memset(blocks, 1, sizeof blocks);
  gpu_call_run(&call, &dense);
  call.request.mask_rows = call.request.mask_cols = 64;
  call.blocks = blocks;
  gpu_call_run(&call, &masked);
  gpu_assert_agree(&dense, &masked, FT_BF16, 1);
  gpu_output_free(&dense), gpu_output_free(&masked);
  gpu_inputs_free(&inputs);
}
END_TEST

static bool all_rows_blind(const struct gpu_output *output, const struct ft_request *r,
                           int64_t from, int64_t to) {
  for (int64_t b = 0; b < r->batch; b++)
    for (int head = 0; head < r->heads_q; head++)
      for (int64_t i = from; i < to; i++) {
        const float lse = output->lse[(b * r->heads_q + head) * r->seqlen_q + i];
        if (!isinf(lse) || lse > 0) return false;
        const int64_t at = ((b * r->seqlen_q + i) * r->heads_q + head) * r->head_dim_v;
        for (int64_t c = at; c < at + r->head_dim_v; c++)
          if ((output->o[c] & 0x7FFF) != 0) return false;
      }
  return true;
}

START_TEST(empty_row_of_blocks_sees_nothing) {
  struct gpu_call call = {.request = gpu_request("forward bf16 d64 hq4 b2 nq300 nk380 mask=64x64"),
                          .config = GPU_SMALL_TILES};
  const struct ft_request *const r = &call.request;
  struct gpu_inputs inputs = gpu_inputs_make(&call, 100);
  uint8_t blocks[MASK_BLOCKS];
  struct gpu_output full, holed;
  memset(blocks, 1, sizeof blocks);
  call.blocks = blocks;
  gpu_call_run(&call, &full);
  memset(blocks + 2 * 6, 0, 6); /* queries 128 .. 191 */
  gpu_call_run(&call, &holed);
  ck_assert(all_rows_blind(&holed, r, 128, 192));
  /* The other rows are none the wiser. */
  for (int64_t n = 0; n < (int64_t)full.o_count; n++) {
    const int64_t i = n / (r->heads_q * r->head_dim_v) % r->seqlen_q;
    if (i < 128 || i >= 192) ck_assert_uint_eq(full.o[n], holed.o[n]);
  }
  gpu_output_free(&full), gpu_output_free(&holed);
  gpu_inputs_free(&inputs);
}
END_TEST

START_TEST(queries_before_the_first_key_see_nothing) {
  struct gpu_call call = {.request = gpu_request("forward fp16 d64 hq2 b2 nq400 nk150 causal")};
  struct gpu_inputs inputs = gpu_inputs_make(&call, 110);
  struct gpu_output output;
  gpu_call_run(&call, &output);
  ck_assert(all_rows_blind(&output, &call.request, 0, 250));
  ck_assert(!all_rows_blind(&output, &call.request, 250, 251));
  gpu_output_free(&output);
  gpu_inputs_free(&inputs);
}
END_TEST

/* ---- dropout ---- */

START_TEST(dropout_of_nothing_is_none) {
  struct gpu_call call = {.request = gpu_request("forward bf16 d128 hq4 b2 nq300 nk300 causal"),
                          .config = GPU_SMALL_TILES};
  struct gpu_inputs inputs = gpu_inputs_make(&call, 120);
  struct gpu_output without, with;
  gpu_call_run(&call, &without);
  call.request.dropout = true;
  gpu_call_run(&call, &with);
  gpu_assert_agree(&without, &with, FT_BF16, 1);
  gpu_output_free(&without), gpu_output_free(&with);
  gpu_inputs_free(&inputs);
}
END_TEST

START_TEST(one_seed_one_mask_in_every_config) {
  struct gpu_call call = {
      .request = gpu_request("forward bf16 d64 hq4 hkv2 b2 nq300 nk300 dropout"), .dropout = 0.5f};
  struct gpu_inputs inputs = gpu_inputs_make(&call, 130);
  struct gpu_output small, large, other;
  call.config = GPU_SMALL_TILES;
  gpu_call_run(&call, &small);
  call.config = GPU_LARGE_TILES;
  gpu_call_run(&call, &large);
  call.seed++;
  gpu_call_run(&call, &other);
  gpu_assert_agree(&small, &large, FT_BF16, 2); /* what is kept is doubled, and its error */
  /* Another mask gives something else altogether, with the same LSE. */
  ck_assert_double_gt(gpu_o_difference(&large, &other, FT_BF16), 0.05);
  gpu_assert_at_most(gpu_lse_difference(&large, &other), 0);
  gpu_output_free(&small), gpu_output_free(&large), gpu_output_free(&other);
  gpu_inputs_free(&inputs);
}
END_TEST

/* With Q = 0 and V = 1 every O is kept / (nk (1 - p)), whose `kept` fp16 tells exactly. */
static void count_kept(const struct gpu_output *output, const struct ft_request *r, double p,
                       double *sum, double *squares) {
  *sum = *squares = 0;
  for (size_t n = 0; n < output->o_count; n += (size_t)r->head_dim_v) {
    const double exact = gpu_value(output, r->dtype, n) * (double)r->seqlen_k * (1 - p);
    const double kept = round(exact);
    gpu_assert_at_most(fabs(exact - kept), 0.45);
    *sum += kept;
    *squares += kept * kept;
  }
}

START_TEST(dropout_keeps_its_share) {
  static const double probabilities[] = {0.0625, 0.125, 0.5, 0.875}; /* exact, however rounded */
  struct gpu_call call = {.request = gpu_request("forward fp16 d16 hq8 b4 nq512 nk256 dropout"),
                          .dropout = (float)probabilities[_i]};
  const struct ft_request *const r = &call.request;
  const double p = probabilities[_i], nk = (double)r->seqlen_k;
  struct gpu_inputs inputs = gpu_inputs_make(&call, 140 + (uint64_t)_i);
  uint16_t *const zeros = gpu_constant(r->dtype, gpu_count_q(r), 0);
  uint16_t *const ones = gpu_constant(r->dtype, gpu_count_v(r), 1);
  struct gpu_output output;
  double sum, squares;
  call.q = zeros;
  call.v = ones;
  gpu_call_run(&call, &output);
  count_kept(&output, r, p, &sum, &squares);
  const double rows = (double)(r->batch * r->heads_q * r->seqlen_q), draws = rows * nk;
  gpu_assert_at_most(fabs(sum - draws * (1 - p)), 5 * sqrt(draws * p * (1 - p)));
  /* Rows vary as independent draws do: the variance's own deviation is sqrt(2 / rows). */
  const double mean = sum / rows, variance = squares / rows - mean * mean;
  gpu_assert_at_most(fabs(variance / (nk * p * (1 - p)) - 1), 5 * sqrt(2 / rows) + 1 / nk);
  gpu_output_free(&output);
  free(zeros), free(ones);
  gpu_inputs_free(&inputs);
}
END_TEST

/* ---- determinism ---- */

static const char *const large_requests[] = {"forward bf16 d128 hq16 hkv4 b2 nq2048 causal",
                                             "forward fp16 d64 hq16 b2 nq2048 dropout",
                                             "forward bf16 d256 hq8 b2 nq1500 nk1700"};

START_TEST(twice_gives_the_same_bits) {
  struct gpu_call call = {.request = gpu_request(large_requests[_i])};
  if (call.request.dropout) call.dropout = 0.1f;
  struct gpu_inputs inputs = gpu_inputs_make(&call, 150 + (uint64_t)_i);
  struct gpu_output once, again;
  gpu_call_run(&call, &once);
  for (int n = 0; n < 4; n++) {
    gpu_call_run(&call, &again);
    gpu_assert_same_bits(&once, &again);
    gpu_output_free(&again);
  }
  gpu_output_free(&once);
  gpu_inputs_free(&inputs);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

Suite *make_gpu_masks_suite(void) {
  Suite *const suite = suite_create("gpu_masks");
  TCase *const tests = tcase_create("masks");
  tcase_add_test(tests, mask_of_ones_is_dense);
  tcase_add_test(tests, empty_row_of_blocks_sees_nothing);
  tcase_add_test(tests, queries_before_the_first_key_see_nothing);
  tcase_add_test(tests, dropout_of_nothing_is_none);
  tcase_add_test(tests, one_seed_one_mask_in_every_config);
  tcase_add_loop_test(tests, dropout_keeps_its_share, 0, 4);
  tcase_add_loop_test(tests, twice_gives_the_same_bits, 0, COUNT(large_requests));
  suite_add_tcase(suite, tests);
  return suite;
}
