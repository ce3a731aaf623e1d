/* problem_score.c: what the score function of a problem captures.
 * in -> out: score + sizes + seed -> values on the host and on the GPU. */
#include "tuner/verify/problem_score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/scorer.h"

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
    const bool is_shared = dim == 0 && tensor->dims > 1 && *state % 2 == 0;
    host->strides[dim] = given->strides[dim] = is_shared ? 0 : count;
    if (!is_shared) count *= host->extents[dim];
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

/* Memory for the gradients that are wanted, which the runs are given. */
static int make_gradients(struct ft_problem_score *score, const struct ft_driver *driver,
                          int64_t wanted) {
  const struct ft_score *const text = &score->known->score;
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    if (!(wanted >> bit & 1)) continue;
    const int64_t count = ft_gradient_count(score->known, &score->inputs, bit);
    const size_t bytes = (size_t)count * sizeof(float);
    score->values[bit] = malloc(bytes);
    if (score->values[bit] == NULL) return ft_fail(FT_E_MEMORY, "no memory for a gradient");
    FT_TRY(ft_driver_status(driver, driver->memory_alloc(&score->gradients[bit], bytes),
                            "cuMemAlloc"));
    score->gradient_counts[bit] = count;
    /* Scalars come first in captured. */
    const int number = bit < FT_SCORE_TENSORS ? text->scalar_count + bit : bit - FT_SCORE_TENSORS;
    score->captured[number].gradient = (float *)(uintptr_t)score->gradients[bit];
  }
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
  return make_gradients(score, &session->driver, request->score_gradients);
}

/* ---- gradients ---- */

int ft_problem_score_poison(struct ft_problem_score *score, fatune_session *session,
                            cu_stream stream) {
  enum { NOT_A_NUMBER = 0x7FC0DEAD };
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit)
    if (score->gradients[bit])
      FT_TRY(
          ft_driver_status(&session->driver,
                           session->driver.set_words(score->gradients[bit], NOT_A_NUMBER,
                                                     (size_t)score->gradient_counts[bit], stream),
                           "cuMemsetD32Async"));
  return FT_OK;
}

static int fetch(const struct ft_problem_score *score, const struct ft_driver *driver, int bit,
                 float *to) {
  const size_t bytes = (size_t)score->gradient_counts[bit] * sizeof(float);
  FT_TRY(ft_driver_status(driver, driver->copy_to_host(to, score->gradients[bit], bytes, NULL),
                          "cuMemcpyDtoHAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize");
}

static bool is_small(const struct ft_request *request) {
  const double pairs = (double)request->batch * request->heads_q * (double)request->seqlen_q *
                       (double)request->seqlen_k;
  return request->score_gradients != 0 && pairs <= 1 << 24;
}

int ft_problem_score_verify(struct ft_problem_score *score, fatune_session *session,
                            const struct ft_host_problem *problem,
                            struct ft_comparison *comparison) {
  if (!is_small(&problem->request)) return FT_OK;
  if (score->answers == NULL) FT_TRY(ft_captured_answers_make(&score->answers, problem));
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    if (!score->gradients[bit]) continue;
    FT_TRY(fetch(score, &session->driver, bit, score->values[bit]));
    ft_captured_answers_compare(score->answers, problem, bit, score->values[bit], comparison);
  }
  return FT_OK;
}

static void tell_difference(struct ft_comparison *comparison, const char *name) {
  *comparison =
      (struct ft_comparison){.error_ratio = HUGE_VAL, .column = FT_COLUMN_NONE, .damaged = true};
  (void)snprintf(comparison->worst, sizeof comparison->worst, "%s differs from run to run", name);
}

int ft_problem_score_repeat(struct ft_problem_score *score, fatune_session *session,
                            struct ft_comparison *comparison) {
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    if (!score->gradients[bit] || score->answers == NULL) continue;
    const size_t bytes = (size_t)score->gradient_counts[bit] * sizeof(float);
    float *const again = malloc(bytes);
    if (again == NULL) return ft_fail(FT_E_MEMORY, "no memory for a copy of a gradient");
    const int status = fetch(score, &session->driver, bit, again);
    if (status == FT_OK && memcmp(again, score->values[bit], bytes) != 0)
      tell_difference(comparison, score->known->gradients[bit].name);
    free(again);
    FT_TRY(status);
  }
  return FT_OK;
}

void ft_problem_score_free(struct ft_problem_score *score, fatune_session *session) {
  for (int i = 0; i < FT_SCORE_TENSORS; ++i) {
    if (score->memory[i]) session->driver.memory_free(score->memory[i]);
    free(score->host[i]);
  }
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    if (score->gradients[bit]) session->driver.memory_free(score->gradients[bit]);
    free(score->values[bit]);
  }
  ft_captured_answers_free(score->answers);
  *score = (struct ft_problem_score){.known = NULL};
}
