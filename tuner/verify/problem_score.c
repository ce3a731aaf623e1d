/* problem_score.c: what the score function of a problem captures.
 * in -> out: score + sizes + seed -> values on the host and on the GPU. */
#include "tuner/verify/problem_score.h"

#include <stdlib.h>

#include "generator/status.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"

static void fill(void *data, enum ft_captured_dtype dtype, int64_t count, uint64_t *state) {
  for (int64_t n = 0; n < count; ++n) {
    const uint64_t bits = ft_random_next(state);
    const float real = (float)((double)(bits >> 40) / (double)(1 << 23) - 1);
    switch (dtype) {
    case FT_CAPTURED_FP32: ((float *)data)[n] = real; break;
    case FT_CAPTURED_FP16: ((uint16_t *)data)[n] = ft_to_dtype(FT_FP16, (double)real); break;
    case FT_CAPTURED_BF16: ((uint16_t *)data)[n] = ft_to_dtype(FT_BF16, (double)real); break;
    case FT_CAPTURED_INT32: ((int32_t *)data)[n] = (int32_t)(bits >> 62); break;
    case FT_CAPTURED_INT64: ((int64_t *)data)[n] = (int64_t)(bits >> 62); break;
    case FT_CAPTURED_UINT8:
    case FT_CAPTURED_BOOL: ((uint8_t *)data)[n] = (uint8_t)(bits >> 62); break;
    case FT_CAPTURED_DTYPES: break;
    }
  }
}

static int upload(struct ft_problem_score *score, const struct ft_driver *driver, int number,
                  size_t bytes) {
  cu_address *const memory = &score->memory[number];
  FT_TRY(ft_driver_status(driver, driver->memory_alloc(memory, bytes), "cuMemAlloc"));
  FT_TRY(ft_driver_status(driver, driver->copy_to_device(*memory, score->host[number], bytes, NULL),
                          "cuMemcpyHtoDAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize");
}

static int make_tensor(struct ft_problem_score *score, const struct ft_driver *driver, int number,
                       uint64_t *state) {
  const struct ft_score *const text = &score->known->score;
  const struct ft_score_tensor *const tensor = &text->tensors[number];
  struct ft_captured *const host = &score->inputs.tensors[number];
  fatune_captured *const given = &score->captured[score->count++];
  int64_t count = 1;
  *given = (fatune_captured){.name = tensor->name};
  for (int dim = tensor->dims - 1; dim >= 0; --dim) {
    const double extent = ft_score_size(&text->expression, tensor->extents[dim], &score->inputs);
    host->extents[dim] = given->extents[dim] = extent < 1 ? 1 : (int64_t)extent;
    host->strides[dim] = given->strides[dim] = count;
    count *= host->extents[dim];
  }
  const size_t bytes = (size_t)count * (size_t)ft_captured_dtype_bytes(tensor->dtype);
  score->host[number] = malloc(bytes);
  if (score->host[number] == NULL)
    return ft_fail(FT_E_MEMORY, "no memory for tensor '%s'", tensor->name);
  fill(score->host[number], tensor->dtype, count, state);
  host->data = score->host[number];
  FT_TRY(upload(score, driver, number, bytes));
  given->data = (const void *)(uintptr_t)score->memory[number];
  return FT_OK;
}

int ft_problem_score_make(struct ft_problem_score *score, fatune_session *session,
                          const struct ft_request *request, uint64_t seed) {
  uint64_t state = seed ^ 0x9E6C63D0876A9A47u;
  *score = (struct ft_problem_score){.known = NULL};
  FT_TRY(ft_session_score(session, request->score, &score->known));
  if (score->known == NULL) return FT_OK;
  double *const symbols = score->inputs.symbols;
  symbols[FT_SYMBOL_NQ] = (double)request->seqlen_q;
  symbols[FT_SYMBOL_NK] = (double)request->seqlen_k;
  symbols[FT_SYMBOL_BATCH] = (double)request->batch;
  symbols[FT_SYMBOL_HEADS] = request->heads_q;
  symbols[FT_SYMBOL_KV_HEADS] = request->heads_kv;
  const struct ft_score *const text = &score->known->score;
  for (int i = 0; i < text->scalar_count; ++i) {
    const double value = text->scalars[i].type == FT_VALUE_INT ? 4 : 2.5;
    score->inputs.scalars[i] = value;
    score->captured[score->count++] =
        (fatune_captured){.name = text->scalars[i].name, .value = value};
  }
  for (int i = 0; i < text->tensor_count; ++i)
    FT_TRY(make_tensor(score, &session->driver, i, &state));
  return FT_OK;
}

void ft_problem_score_free(struct ft_problem_score *score, fatune_session *session) {
  for (int i = 0; i < FT_SCORE_TENSORS; ++i) {
    if (score->memory[i]) session->driver.memory_free(score->memory[i]);
    free(score->host[i]);
  }
  *score = (struct ft_problem_score){.known = NULL};
}
