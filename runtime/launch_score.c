/* launch_score.c: what a score function captures, checked.
 * in -> out: score + fatune_arguments -> struct ft_arg_score. No allocation: this is of every run.
 */
#include "runtime/launch_score.h"

#include <math.h>
#include <string.h>

#include "generator/score/cuda.h"
#include "generator/score/interpret.h"
#include "generator/status.h"

_Static_assert(sizeof(((struct ft_arg_score *)0)->tensors[0]) == sizeof(struct ft_arg_captured),
               "the same bytes");

static const fatune_captured *find(const fatune_arguments *arguments, const char *name) {
  for (int i = 0; i < arguments->captured_count; ++i)
    if (arguments->captured[i].name != NULL && strcmp(arguments->captured[i].name, name) == 0)
      return &arguments->captured[i];
  return NULL;
}

static bool is_known(const struct ft_score *score, const char *name) {
  for (int i = 0; i < score->scalar_count; ++i)
    if (strcmp(score->scalars[i].name, name) == 0) return true;
  for (int i = 0; i < score->tensor_count; ++i)
    if (strcmp(score->tensors[i].name, name) == 0) return true;
  return false;
}

static int check_names(const struct ft_score *score, const fatune_arguments *arguments) {
  for (int i = 0; i < arguments->captured_count; ++i) {
    const char *const name = arguments->captured[i].name;
    if (name == NULL) return ft_fail(FT_E_ARGUMENT, "arguments.captured[%d].name is NULL", i);
    if (!is_known(score, name))
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.captured[%d] is '%s'; score %s captures no such thing", i, name,
                     score->name);
  }
  return FT_OK;
}

static int missing(const struct ft_score *score, const char *kind, const char *name) {
  return ft_fail(FT_E_ARGUMENT, "arguments.captured lacks %s '%s' of score %s", kind, name,
                 score->name);
}

static int read_scalar(uint32_t *to, double *value, const struct ft_score *score, int number,
                       const fatune_arguments *arguments) {
  const struct ft_score_scalar *const scalar = &score->scalars[number];
  const fatune_captured *const given = find(arguments, scalar->name);
  if (given == NULL) return missing(score, "scalar", scalar->name);
  *value = given->value;
  if (scalar->type == FT_VALUE_FLOAT) {
    const float single = (float)given->value;
    memcpy(to, &single, sizeof single);
    return FT_OK;
  }
  const bool is_whole =
      given->value >= INT32_MIN && given->value <= INT32_MAX && given->value == floor(given->value);
  if (!is_whole)
    return ft_fail(FT_E_ARGUMENT, "arguments.captured: '%s' is %g; allowed: integers of 32 bits",
                   scalar->name, given->value);
  const int32_t whole = (int32_t)given->value;
  memcpy(to, &whole, sizeof whole);
  return FT_OK;
}

static int read_dim(struct ft_arg_captured *to, const struct ft_score_tensor *tensor, int dim,
                    const fatune_captured *given, double least) {
  const int64_t extent = given->extents[dim], stride = given->strides[dim];
  if (extent < 1 || extent > INT32_MAX || (double)extent < least)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: extent %d of '%s' is %lld; allowed: %.0f to 2^31 - 1",
                   dim + 1, tensor->name, (long long)extent, fmax(least, 1));
  if (stride < 0 || stride > INT64_MAX >> 36)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: stride %d of '%s' is %lld; allowed: 0 to 2^27 - 1", dim + 1,
                   tensor->name, (long long)stride);
  to->stride[dim] = stride;
  to->last[dim] = (int32_t)(extent - 1);
  return FT_OK;
}

static int read_tensor(uint64_t *to, const struct ft_score *score, int number,
                       const struct ft_score_inputs *sizes, const fatune_arguments *arguments) {
  const struct ft_score_tensor *const tensor = &score->tensors[number];
  const fatune_captured *const given = find(arguments, tensor->name);
  if (given == NULL) return missing(score, "tensor", tensor->name);
  const uint64_t bytes = (uint64_t)ft_captured_dtype_bytes(tensor->dtype);
  struct ft_arg_captured captured = {.data = (uint64_t)(uintptr_t)given->data};
  if (captured.data == 0 || captured.data % bytes != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: data of '%s' is %p; allowed: multiples of %d", tensor->name,
                   given->data, (int)bytes);
  for (int dim = 0; dim < tensor->dims; ++dim)
    FT_TRY(read_dim(&captured, tensor, dim, given,
                    ft_score_size(&score->expression, tensor->extents[dim], sizes)));
  memcpy(to, &captured, sizeof captured);
  return FT_OK;
}

int ft_score_arguments_read(struct ft_arg_score *to, struct ft_arg_softmax *softmax,
                            const struct ft_known_score *known, const struct ft_run *run,
                            const fatune_arguments *arguments) {
  static const float log2_e = 1.44269504f;
  if (arguments->captured_count < 0 || (arguments->captured_count > 0 && !arguments->captured))
    return ft_fail(FT_E_ARGUMENT, "arguments.captured_count is %d with captured %p",
                   arguments->captured_count, (const void *)arguments->captured);
  if (known == NULL) {
    if (arguments->captured_count == 0) return FT_OK;
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured_count is %d; allowed: 0, the plan's request "
                   "has no score",
                   arguments->captured_count);
  }
  const struct ft_score *const score = &known->score;
  struct ft_score_inputs sizes = {.symbols = {[FT_SYMBOL_NQ] = (double)run->nq,
                                              [FT_SYMBOL_NK] = (double)run->nk,
                                              [FT_SYMBOL_BATCH] = (double)run->batch,
                                              [FT_SYMBOL_HEADS] = run->heads_q,
                                              [FT_SYMBOL_KV_HEADS] = run->heads_kv}};
  FT_TRY(check_names(score, arguments));
  /* The kernel's struct has its scalars right behind its tensors. */
  uint32_t *const scalars = (uint32_t *)(void *)to->tensors[score->tensor_count];
  for (int i = 0; i < score->scalar_count; ++i)
    FT_TRY(read_scalar(&scalars[i], &sizes.scalars[i], score, i, arguments));
  for (int i = 0; i < score->tensor_count; ++i)
    FT_TRY(read_tensor(to->tensors[i], score, i, &sizes, arguments));
  if (known->has_score) softmax->scale_log2 = log2_e;
  return FT_OK;
}

void ft_add_captured(struct ft_launch_tensors *all, const struct ft_arg_score *from,
                     const struct ft_known_score *known) {
  for (int i = 0; known != NULL && i < known->score.tensor_count; ++i) {
    const struct ft_score_tensor *const tensor = &known->score.tensors[i];
    struct ft_arg_captured captured;
    memcpy(&captured, from->tensors[i], sizeof captured);
    struct ft_emulated_tensor added = {.name = tensor->name,
                                       .address = captured.data,
                                       .element_bytes = ft_captured_dtype_bytes(tensor->dtype)};
    for (int dim = 0; dim < FT_TENSOR_DIMS; ++dim) {
      added.extents[dim] = dim < tensor->dims ? captured.last[dim] + 1 : 1;
      added.strides[dim] = captured.stride[dim];
    }
    all->tensors[all->count++] = added;
  }
}
