/* gpu_call.h: one call of the public interface over host arrays.
 * in -> out: request, Q, K, V, mask on the host -> plan, device memory, run -> O, LSE on the host.
 */
#ifndef TESTS_GPU_GPU_CALL_H
#define TESTS_GPU_GPU_CALL_H

#include "tests/gpu/gpu_lab.h"

struct gpu_call {
  struct ft_request request; /* lengths, batch, heads of the run too */
  const char *config;        /* NULL: the plan chooses */
  const uint16_t *q, *k, *v; /* dense [batch, seq, head, dim] in the request's dtype */
  const uint8_t *blocks;     /* [mask_batch, mask_heads, rows, cols] */
  int64_t mask_batch;
  int mask_heads;
  float scale, dropout;
  uint64_t seed, offset;
};

struct gpu_output {
  uint16_t *o; /* [batch, seq, head, dim_v] */
  float *lse;  /* [batch, head, seq] */
  size_t o_count, lse_count;
};

/* Fails the test on any error. */
void gpu_call_run(const struct gpu_call *call, struct gpu_output *output);
void gpu_output_free(struct gpu_output *output);
bool gpu_output_equal(const struct gpu_output *a, const struct gpu_output *b); /* bit for bit */

/* Values as patterns; each is to be freed. uniform: in [-1, 1]; normal: standard. */
uint16_t *gpu_uniform(enum ft_dtype dtype, int64_t count, uint64_t seed);
uint16_t *gpu_normal(enum ft_dtype dtype, int64_t count, uint64_t seed);
uint16_t *gpu_constant(enum ft_dtype dtype, int64_t count, double value);

/* Elements of Q, K, V, O of a request. */
int64_t gpu_count_q(const struct ft_request *request);
int64_t gpu_count_k(const struct ft_request *request);
int64_t gpu_count_v(const struct ft_request *request);
int64_t gpu_count_o(const struct ft_request *request);

/* The largest relative error of one rounding: 2^-8 for bf16, 2^-11 for fp16. */
double gpu_roundoff(enum ft_dtype dtype);

#endif
