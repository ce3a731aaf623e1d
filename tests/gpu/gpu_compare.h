/* gpu_compare.h: random inputs of a call, and how far two outputs may be apart.
 * in -> out: request -> inputs; two outputs -> largest differences, assertions with derived bounds.
 *
 * Bounds: a kernel rounds P to the dtype (relative error u = half an ulp) and O again. With |V| <=
 * 1 the first costs at most u, the second u |O| <= u, so two runs of the same thing in another
 * order differ by at most 4 u; GPU_SLACK covers fp32 accumulation. A tile lost or taken twice shows
 * as 10 to 100 times that. */
#ifndef TESTS_GPU_GPU_COMPARE_H
#define TESTS_GPU_GPU_COMPARE_H

#include "tests/gpu/gpu_call.h"

#define GPU_SLACK     2e-4
#define GPU_LSE_BOUND 2e-5 /* fp32 sums of some hundred terms, LSE about 6 */

/* Legal for every request they are used for: no feature needs more than they give. */
#define GPU_SMALL_TILES                                                                            \
  "mma_forward block_m=64 block_n=32 warps=4 stages=1 q_in_regs=0 overlap_qk=0 ctas_per_sm=1"
#define GPU_LARGE_TILES                                                                            \
  "mma_forward block_m=128 block_n=64 warps=8 stages=2 q_in_regs=0 overlap_qk=0 ctas_per_sm=1"

/* Q and K normal, V in [-1, 1]; the call points to them and has seeds of its own. */
struct gpu_inputs {
  uint16_t *q, *k, *v;
};
struct gpu_inputs gpu_inputs_make(struct gpu_call *call, uint64_t salt);
void gpu_inputs_free(struct gpu_inputs *inputs);

double gpu_value(const struct gpu_output *output, enum ft_dtype dtype, size_t n);

/* The largest difference of O, and of LSE, where -inf equals -inf. NaN gives infinity. */
double gpu_o_difference(const struct gpu_output *a, const struct gpu_output *b,
                        enum ft_dtype dtype);
double gpu_lse_difference(const struct gpu_output *a, const struct gpu_output *b);

/* The same thing computed in another order; `enlarged`: how much dropout enlarges what it keeps. */
void gpu_assert_agree(const struct gpu_output *a, const struct gpu_output *b, enum ft_dtype dtype,
                      double enlarged);
void gpu_assert_same_bits(const struct gpu_output *a, const struct gpu_output *b);

#define gpu_assert_at_most(value, bound)                                                           \
  do {                                                                                             \
    const double at_most_value = (value), at_most_bound = (bound);                                 \
    ck_assert_msg(at_most_value <= at_most_bound, "%s is %g, at most %g (FATUNE_TEST_SEED=%llu)",  \
                  #value, at_most_value, at_most_bound, (unsigned long long)gpu_lab()->seed);      \
  } while (0)

#endif
