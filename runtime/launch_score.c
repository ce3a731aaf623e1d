/* launch_score.c: what a score function captures, checked.
 * in -> out: score + fatune_arguments -> struct ft_arg_score. No allocation: this is of every run.
 */
#include "runtime/launch_score.h"

#include <math.h>
#include <string.h>

#include "generator/score/cuda.h"
#include "generator/score/interpret.h"
#include "generator/status.h"

_Static_assert(sizeof(((struct ft_arg_score *)0)->tensors[0]) == sizeof(struct ft_arg_captured) &&
                   sizeof(((struct ft_arg_score *)0)->gradients[0]) ==
                       sizeof(struct ft_arg_gradient),
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
  if (given->data != NULL)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: data of '%s' is %p; allowed: NULL, score %s has it as a "
                   "scalar",
                   scalar->name, given->data, score->name);
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

/* From the first index of a dimension to its last, in elements of up to 8 bytes: offsets fit into
 * 64 bits by far. */
enum { SPAN_BITS = 58 };

static int read_dim(struct ft_arg_captured *to, const struct ft_score_tensor *tensor, int dim,
                    const fatune_captured *given, double least) {
  const int64_t extent = given->extents[dim], stride = given->strides[dim];
  if (extent < 1 || extent > INT32_MAX || (double)extent < least)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: extent %d of '%s' is %lld; allowed: %.0f to 2^31 - 1",
                   dim + 1, tensor->name, (long long)extent, fmax(least, 1));
  const int64_t most = extent > 1 ? (INT64_C(1) << SPAN_BITS) / (extent - 1) : INT64_MAX;
  if (stride < 0 || stride > most)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments.captured: stride %d of '%s' is %lld; allowed: 0 to %lld with an extent "
        "of %lld",
        dim + 1, tensor->name, (long long)stride, (long long)most, (long long)extent);
  to->stride[dim] = stride;
  to->last[dim] = (int32_t)(extent - 1);
  return FT_OK;
}

/* Where it has fewer dimensions than the score has indices for it, the last extents are 0. */
static int check_dims(const struct ft_score *score, const struct ft_score_tensor *tensor,
                      const fatune_captured *given) {
  int dims = 0;
  for (int dim = 0; dim < FT_SCORE_DIMS; ++dim)
    if (given->extents[dim] != 0) dims = dim + 1;
  if (dims == 0 || dims >= tensor->dims) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments.captured: '%s' has %d dimension%s; score %s reads it by %d indices",
                 tensor->name, dims, dims > 1 ? "s" : "", score->name, tensor->dims);
}

static int read_tensor(uint64_t *to, const struct ft_score *score, int number,
                       const struct ft_score_inputs *sizes, const fatune_arguments *arguments) {
  const struct ft_score_tensor *const tensor = &score->tensors[number];
  const fatune_captured *const given = find(arguments, tensor->name);
  if (given == NULL) return missing(score, "tensor", tensor->name);
  const uint64_t bytes = (uint64_t)ft_captured_dtype_bytes(tensor->dtype);
  struct ft_arg_captured captured = {.data = (uint64_t)(uintptr_t)given->data};
  FT_TRY(check_dims(score, tensor, given));
  for (int dim = 0; dim < tensor->dims; ++dim)
    FT_TRY(read_dim(&captured, tensor, dim, given,
                    ft_score_size(&score->expression, tensor->extents[dim], sizes)));
  for (int dim = tensor->dims; dim < FT_SCORE_DIMS; ++dim)
    if (given->extents[dim] > 1)
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.captured: extent %d of '%s' is %lld; allowed: 0 or 1, score %s "
                     "reads it by %d indices",
                     dim + 1, tensor->name, (long long)given->extents[dim], score->name,
                     tensor->dims);
  if (captured.data == 0 || captured.data % bytes != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: data of '%s' is %p; allowed: multiples of %d", tensor->name,
                   given->data, (int)bytes);
  memcpy(to, &captured, sizeof captured);
  return FT_OK;
}

/* ---- rows for TMA ---- */

/* The twin of can_be_mapped in emitted text. */
static bool can_be_mapped(const struct ft_arg_captured *captured,
                          const struct ft_exponent *exponent, int dims) {
  enum { ALIGNMENT = 16, ELEMENTS = 8 }; /* bytes, and elements of 16 bits */
  bool can = captured->data % ALIGNMENT == 0 && captured->stride[exponent->tile_key] == 1 &&
             captured->stride[exponent->tile_row] > 0;
  for (int dim = 0; dim < dims; ++dim)
    can &= dim == exponent->tile_key || captured->stride[dim] % ELEMENTS == 0;
  return can;
}

bool ft_score_tile_of(struct ft_score_tile *tile, const struct ft_arg_score *from,
                      const struct ft_known_score *score) {
  const struct ft_exponent *const exponent = &score->exponent;
  const int number = ft_node(&score->score.expression, exponent->tile)->number;
  const struct ft_score_tensor *const tensor = &score->score.tensors[number];
  struct ft_arg_captured captured;
  memcpy(&captured, &from->tensors[number], sizeof captured);
  if (!can_be_mapped(&captured, exponent, tensor->dims)) return false;
  int64_t strides[2] = {0};
  int extents[2] = {1, 1}, others = 0;
  for (int dim = 0; dim < tensor->dims; ++dim) {
    if (dim == exponent->tile_key || dim == exponent->tile_row) continue;
    strides[others] = captured.stride[dim];
    extents[others++] = captured.stride[dim] == 0 ? 1 : captured.last[dim] + 1;
  }
  *tile = (struct ft_score_tile){.tensor = {.data = captured.data,
                                            .stride = {.batch = strides[1],
                                                       .row = captured.stride[exponent->tile_row],
                                                       .head = strides[0]}},
                                 .columns = captured.last[exponent->tile_key] + 1,
                                 .rows = captured.last[exponent->tile_row] + 1,
                                 .heads = extents[0],
                                 .batch = extents[1],
                                 .dtype = tensor->dtype == FT_CAPTURED_FP16 ? FT_FP16 : FT_BF16};
  return true;
}

/* ---- gradients ---- */

enum { WORDS_OF_ELEMENT = 2, WORD = 8, ALIGNMENT = 256, COUNT_BITS = 40 };

/* Where the kernel's struct has the n-th gradient: behind the scalars, from whole 8 bytes on. */
static size_t gradient_offset(const struct ft_score *score, int n) {
  const size_t before = (size_t)score->tensor_count * sizeof(struct ft_arg_captured) +
                        (size_t)score->scalar_count * sizeof(uint32_t);
  return (before + 7) / 8 * 8 + (size_t)n * sizeof(struct ft_arg_gradient);
}

/* What a bit of ft_request.score_gradients stands for. */
static const char *name_of(const struct ft_score *score, int bit) {
  return bit < FT_SCORE_TENSORS ? score->tensors[bit].name
                                : score->scalars[bit - FT_SCORE_TENSORS].name;
}

static int lay_out(struct ft_arg_gradient *gradient, const struct ft_score *score, int bit,
                   const fatune_captured *given) {
  gradient->count = 1;
  const int dims = bit < FT_SCORE_TENSORS ? score->tensors[bit].dims : 0;
  for (int dim = dims - 1; dim >= 0; --dim) {
    if (given->strides[dim] == 0 || given->extents[dim] == 1) continue;
    gradient->stride[dim] = gradient->count;
    if (given->extents[dim] < 1 ||
        __builtin_mul_overflow(gradient->count, given->extents[dim], &gradient->count) ||
        gradient->count >> COUNT_BITS != 0)
      return ft_fail(
          FT_E_ARGUMENT,
          "arguments.captured: '%s' has more than 2^40 elements; allowed for a gradient: "
          "no more",
          given->name);
  }
  return FT_OK;
}

static int64_t words_bytes(const struct ft_arg_gradient *gradient) {
  const int64_t bytes = (gradient->count + 1) * WORDS_OF_ELEMENT * WORD;
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int ft_score_workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                       int64_t *bytes) {
  const struct ft_request *const request = plan->request;
  *bytes = 0;
  if (!request->deterministic || plan->score == NULL) return FT_OK;
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    if (!(request->score_gradients >> bit & 1)) continue;
    struct ft_arg_gradient gradient = {0};
    const char *const name = name_of(&plan->score->score, bit);
    const fatune_captured *const given = find(arguments, name);
    if (given == NULL) return missing(&plan->score->score, "what the workspace depends on,", name);
    FT_TRY(lay_out(&gradient, &plan->score->score, bit, given));
    *bytes += words_bytes(&gradient);
  }
  return FT_OK;
}

static int check_gradient(const fatune_captured *given, bool wanted) {
  if ((given->gradient != NULL) != wanted)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: gradient of '%s' is %p; the request wants %s", given->name,
                   (void *)given->gradient, wanted ? "one" : "none");
  if ((uintptr_t)given->gradient % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.captured: gradient of '%s' is %p; allowed: multiples of 4",
                   given->name, (void *)given->gradient);
  return FT_OK;
}

static int read_gradients(struct ft_arg_score *to, const struct ft_launch_plan *plan,
                          const fatune_arguments *arguments, uint64_t workspace) {
  const struct ft_known_score *const known = plan->score;
  if (plan->request->pass == FT_FORWARD) return FT_OK;
  for (int bit = 0, n = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    struct ft_arg_gradient gradient = {0};
    const bool wanted = plan->request->score_gradients >> bit & 1;
    if (known->gradients[bit].name[0] == '\0') continue; /* nothing is captured */
    const fatune_captured *const given = find(arguments, name_of(&known->score, bit));
    FT_TRY(check_gradient(given, wanted));
    if (!known->gradients[bit].exists) continue;
    const size_t offset = gradient_offset(&known->score, n++);
    if (wanted) {
      FT_TRY(lay_out(&gradient, &known->score, bit, given));
      gradient.data = (uintptr_t)given->gradient;
      gradient.words = plan->request->deterministic ? workspace : 0;
      workspace += (uint64_t)words_bytes(&gradient);
    }
    memcpy((char *)to + offset, &gradient, sizeof gradient);
  }
  return FT_OK;
}

/* ---- all that a score captures ---- */

int ft_score_check_length(const char *name, int64_t length) {
  if (length <= FT_SCORE_LENGTH_MOST) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "%s is %lld; allowed: at most 2^23 with a score function", name,
                 (long long)length);
}

int ft_score_arguments_read(struct ft_arg_score *to, struct ft_arg_softmax *softmax,
                            const struct ft_launch_plan *plan, const struct ft_run *run,
                            const fatune_arguments *arguments, uint64_t workspace) {
  const struct ft_known_score *const known = plan->score;
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
  FT_TRY(ft_score_check_length("arguments.seqlen_q", run->nq));
  FT_TRY(ft_score_check_length("arguments.seqlen_k", run->nk));
  FT_TRY(check_names(score, arguments));
  /* The kernel's struct has its scalars right behind its tensors. */
  uint32_t *const scalars = (uint32_t *)(void *)to->tensors[score->tensor_count];
  for (int i = 0; i < score->scalar_count; ++i)
    FT_TRY(read_scalar(&scalars[i], &sizes.scalars[i], score, i, arguments));
  for (int i = 0; i < score->tensor_count; ++i)
    FT_TRY(read_tensor(to->tensors[i], score, i, &sizes, arguments));
  if (known->has_score) softmax->scale_log2 = log2_e;
  return read_gradients(to, plan, arguments, workspace);
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

void ft_add_gradients(struct ft_launch_tensors *all, const struct ft_arg_score *from,
                      const struct ft_launch_plan *plan, bool is_last) {
  const struct ft_known_score *const known = plan->score;
  for (int bit = 0, n = 0; known != NULL && bit < FT_GRADIENTS_MOST; ++bit) {
    if (!known->gradients[bit].exists) continue;
    struct ft_arg_gradient gradient;
    memcpy(&gradient, (const char *)from + gradient_offset(&known->score, n++), sizeof gradient);
    if (!(plan->request->score_gradients >> bit & 1)) continue;
    const bool has_words = gradient.words != 0;
    ft_add_work(all, known->gradients[bit].name, gradient.data, gradient.count, 1)->writable =
        has_words == is_last;
    if (!has_words) continue;
    struct ft_emulated_tensor *const words = ft_add_work(
        all, known->gradients[bit].name, gradient.words, gradient.count + 1, WORDS_OF_ELEMENT);
    words->element_bytes = WORD;
    words->writable = !is_last;
  }
}
