/* gpu_call.c: one call of the public interface over host arrays.
 * in -> out: struct gpu_call -> plan, buffers, launch, copies -> struct gpu_output. */
#include "tests/gpu/gpu_call.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t gpu_count_q(const struct ft_request *r) {
  return r->batch * r->seqlen_q * r->heads_q * r->head_dim;
}

int64_t gpu_count_k(const struct ft_request *r) {
  return r->batch * r->seqlen_k * r->heads_kv * r->head_dim;
}

int64_t gpu_count_v(const struct ft_request *r) {
  return r->batch * r->seqlen_k * r->heads_kv * r->head_dim_v;
}

int64_t gpu_count_o(const struct ft_request *r) {
  return r->batch * r->seqlen_q * r->heads_q * r->head_dim_v;
}

double gpu_roundoff(enum ft_dtype dtype) {
  return dtype == FT_BF16 ? 0x1p-8 : 0x1p-11;
}

static uint16_t *new_array(int64_t count) {
  uint16_t *const made = malloc((size_t)count * sizeof *made);
  ck_assert_ptr_nonnull(made);
  return made;
}

uint16_t *gpu_constant(enum ft_dtype dtype, int64_t count, double value) {
  uint16_t *const made = new_array(count);
  for (int64_t n = 0; n < count; n++) made[n] = ft_to_dtype(dtype, value);
  return made;
}

uint16_t *gpu_uniform(enum ft_dtype dtype, int64_t count, uint64_t seed) {
  uint16_t *const made = new_array(count);
  for (int64_t n = 0; n < count; n++) {
    const double value = (double)(int64_t)(gpu_random(&seed) >> 31) * 0x1p-32 - 1;
    made[n] = ft_to_dtype(dtype, value);
  }
  return made;
}

uint16_t *gpu_normal(enum ft_dtype dtype, int64_t count, uint64_t seed) {
  void *made = NULL;
  gpu_assert_ok(ft_random_tensor(&made, dtype, count, seed));
  return made;
}

/* ---- device memory ---- */

/* What one run holds on the device. */
struct buffers {
  cu_address q, k, v, o, lse;
};

static cu_address upload(const uint16_t *values, int64_t count) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const size_t bytes = (size_t)count * sizeof *values;
  cu_address address = 0;
  gpu_assert_cuda(driver->memory_alloc(&address, bytes));
  gpu_assert_cuda(driver->copy_to_device(address, values, bytes, NULL));
  return address;
}

/* Filled with NaN, so that what is not written shows. */
static cu_address output_of(size_t bytes) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  cu_address address = 0;
  gpu_assert_cuda(driver->memory_alloc(&address, bytes));
  gpu_assert_cuda(driver->set_bytes(address, 0xFF, bytes, NULL));
  return address;
}

static fatune_tensor dense(cu_address address, int64_t rows, int heads, int dim) {
  const fatune_tensor tensor = {.data = (void *)(uintptr_t)address,
                                .stride_batch = rows * heads * dim,
                                .stride_seq = (int64_t)heads * dim,
                                .stride_head = dim};
  return tensor;
}

static void fetch(void *to, cu_address from, size_t bytes) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  gpu_assert_cuda(driver->copy_to_host(to, from, bytes, NULL));
  gpu_assert_cuda(driver->stream_synchronize(NULL));
}

/* ---- the call ---- */

static fatune_mask *mask_of(const struct gpu_call *call) {
  const struct ft_request *const r = &call->request;
  if (r->mask_rows == 0) return NULL;
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  options.blocks = call->blocks;
  options.mask_rows = r->mask_rows;
  options.mask_cols = r->mask_cols;
  options.batch = call->mask_batch ? call->mask_batch : 1;
  options.heads = call->mask_heads ? call->mask_heads : 1;
  options.seqlen_q = r->seqlen_q;
  options.seqlen_k = r->seqlen_k;
  fatune_mask *mask = NULL;
  gpu_assert_ok(fatune_mask_make(&mask, gpu_lab()->session, &options, NULL));
  return mask;
}

static fatune_arguments arguments_of(const struct gpu_call *call, const struct buffers *buffers) {
  const struct ft_request *const r = &call->request;
  fatune_arguments arguments = FATUNE_ARGUMENTS_INIT;
  arguments.q = dense(buffers->q, r->seqlen_q, r->heads_q, r->head_dim);
  arguments.k = dense(buffers->k, r->seqlen_k, r->heads_kv, r->head_dim);
  arguments.v = dense(buffers->v, r->seqlen_k, r->heads_kv, r->head_dim_v);
  arguments.o = dense(buffers->o, r->seqlen_q, r->heads_q, r->head_dim_v);
  arguments.lse = (float *)(uintptr_t)buffers->lse;
  arguments.scale = call->scale;
  arguments.dropout = call->dropout;
  arguments.seed = call->seed;
  arguments.offset = call->offset;
  return arguments;
}

void gpu_call_run(const struct gpu_call *call, struct gpu_output *output) {
  const struct ft_request *const r = &call->request;
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  output->o_count = (size_t)gpu_count_o(r);
  output->lse_count = (size_t)(r->batch * r->heads_q * r->seqlen_q);
  const size_t o_bytes = output->o_count * sizeof *output->o;
  const size_t lse_bytes = output->lse_count * sizeof *output->lse;
  output->o = malloc(o_bytes);
  output->lse = malloc(lse_bytes);
  ck_assert(output->o && output->lse);

  const struct buffers buffers = {.q = upload(call->q, gpu_count_q(r)),
                                  .k = upload(call->k, gpu_count_k(r)),
                                  .v = upload(call->v, gpu_count_v(r)),
                                  .o = output_of(o_bytes),
                                  .lse = output_of(lse_bytes)};
  fatune_plan *const plan = gpu_plan(&call->request, call->config);
  fatune_arguments arguments = arguments_of(call, &buffers);
  fatune_mask *const mask = mask_of(call);
  arguments.mask = mask;
  gpu_assert_ok(fatune_plan_run(plan, &arguments, NULL));
  fetch(output->o, buffers.o, o_bytes);
  fetch(output->lse, buffers.lse, lse_bytes);

  fatune_plan_free(plan);
  fatune_mask_free(mask);
  const cu_address all[] = {buffers.q, buffers.k, buffers.v, buffers.o, buffers.lse};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    gpu_assert_cuda(driver->memory_free(all[i]));
}

void gpu_output_free(struct gpu_output *output) {
  free(output->o);
  free(output->lse);
}

bool gpu_output_equal(const struct gpu_output *a, const struct gpu_output *b) {
  return a->o_count == b->o_count && a->lse_count == b->lse_count &&
         memcmp(a->o, b->o, a->o_count * sizeof *a->o) == 0 &&
         memcmp(a->lse, b->lse, a->lse_count * sizeof *a->lse) == 0;
}
