/* problem_outputs.c: what an output can have wrong, whatever its values should be.
 * in -> out: a buffer with its fences from the GPU -> fences whole, every element written, gaps
 * untouched. */
#include "tuner/verify/problem_outputs.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"

int ft_output_fetch(struct ft_problem *problem, int buffer, unsigned char *to) {
  const struct ft_driver *driver = &problem->session->driver;
  if (!problem->memory[buffer]) return FT_OK;
  FT_TRY(ft_driver_status(driver,
                          driver->copy_to_host(to, problem->memory[buffer],
                                               problem->bytes[buffer] + 2 * FT_FENCE_BYTES, NULL),
                          "cuMemcpyDtoHAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize");
}

int ft_output_fetch_again(struct ft_problem *problem, int buffer, const unsigned char **to) {
  const size_t bytes = problem->bytes[buffer] + 2 * FT_FENCE_BYTES;
  *to = NULL;
  if (problem->again_bytes < bytes) {
    free(problem->again);
    problem->again = malloc(bytes);
    problem->again_bytes = problem->again ? bytes : 0;
  }
  if (!problem->again) return ft_fail(FT_E_MEMORY, "no memory for a copy of an output");
  FT_TRY(ft_output_fetch(problem, buffer, problem->again));
  *to = problem->again;
  return FT_OK;
}

bool ft_output_found(struct ft_comparison *comparison, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  *comparison =
      (struct ft_comparison){.error_ratio = INFINITY, .column = FT_COLUMN_NONE, .damaged = true};
  vsnprintf(comparison->worst, sizeof comparison->worst, format, arguments);
  va_end(arguments);
  return true;
}

bool ft_output_fence_broken(const unsigned char *image, size_t bytes, const char *name,
                            struct ft_comparison *comparison) {
  const uint32_t word = FT_FENCE_WORD;
  for (size_t n = 0; n < FT_FENCE_BYTES; n += sizeof word) {
    const size_t distance = FT_FENCE_BYTES - n;
    if (memcmp(image + n, &word, sizeof word) != 0) {
      return ft_output_found(comparison, "wrote %zu bytes before the begin of %s", distance, name);
    }
    if (memcmp(image + FT_FENCE_BYTES + bytes + n, &word, sizeof word) != 0) {
      return ft_output_found(comparison, "wrote %zu bytes past the end of %s", n, name);
    }
  }
  return false;
}

/* ---- loops over all elements of an output ---- */

/* In lots, whose loops have a length that the compiler knows: it makes vector instructions of them,
 * and outputs have up to 1e8 elements for each candidate. */
enum { LOT = 32 };

/* The largest magnitude, as a pattern. Signed: there is a vector instruction for their maximum. */
static int16_t largest_half(const uint16_t *values, int count) {
  int16_t largest = 0;
  for (int n = 0; n < count; n++) {
    const int16_t magnitude = (int16_t)(values[n] & 0x7FFF);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

static int32_t largest_float(const uint32_t *patterns, int count) {
  int32_t largest = 0;
  for (int n = 0; n < count; n++) {
    const int32_t magnitude = (int32_t)(patterns[n] & 0x7FFFFFFFu);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

static bool holds_nan(enum ft_dtype dtype, const void *values, int64_t count) {
  const int16_t infinity = dtype == FT_FP16 ? 0x7C00 : 0x7F80;
  bool nan = false;
  int64_t n = 0;
  if (dtype == FT_FP32) {
    const uint32_t *const patterns = values;
    for (; n + LOT <= count; n += LOT) nan |= largest_float(patterns + n, LOT) > 0x7F800000;
    return nan || largest_float(patterns + n, (int)(count - n)) > 0x7F800000;
  }
  const uint16_t *const halves = values;
  for (; n + LOT <= count; n += LOT) nan |= largest_half(halves + n, LOT) > infinity;
  return nan || largest_half(halves + n, (int)(count - n)) > infinity;
}

static int poisoned_halves(const uint16_t *values, int count) {
  int poisoned = 0;
  for (int n = 0; n < count; n++) poisoned += values[n] == FT_POISON_16;
  return poisoned;
}

static int poisoned_words(const uint32_t *values, int count) {
  int poisoned = 0;
  for (int n = 0; n < count; n++) poisoned += values[n] == 0xFFFFFFFFu;
  return poisoned;
}

/* How many elements still hold what outputs are filled with. */
static int64_t count_poisoned(const struct ft_shape *shape, const void *values) {
  int64_t poisoned = 0, n = 0;
  if (shape->host_bytes == (int)sizeof(uint16_t)) {
    const uint16_t *const halves = values;
    for (; n + LOT <= shape->span; n += LOT) poisoned += poisoned_halves(halves + n, LOT);
    return poisoned + poisoned_halves(halves + n, (int)(shape->span - n));
  }
  const uint32_t *const words = values;
  for (; n + LOT <= shape->span; n += LOT) poisoned += poisoned_words(words + n, LOT);
  return poisoned + poisoned_words(words + n, (int)(shape->span - n));
}

/* ---- what may be wrong ---- */

bool ft_output_unwritten(const struct ft_shape *shape, enum ft_dtype dtype, const void *values,
                         const char *name, const char *what, struct ft_comparison *comparison) {
  const bool without_gaps = shape->span == shape->held;
  if (without_gaps && !holds_nan(dtype, values, shape->span)) return false;
  for (int64_t b = 0; b < shape->batch; b++) {
    for (int64_t row = 0; row < ft_shape_rows(shape, b); row++) {
      for (int head = 0; head < shape->heads; head++) {
        const void *own = ft_element(dtype, values, ft_shape_offset(shape, b, row, head));
        if (!holds_nan(dtype, own, shape->dim)) continue;
        ft_output_found(comparison, "%s of batch %lld head %d %s %lld is NaN or was not written",
                        name, (long long)b, head, what, (long long)row);
        comparison->row = (struct ft_row){b, head, row};
        comparison->column = 0;
        while (!holds_nan(dtype, ft_element(dtype, own, comparison->column), 1))
          comparison->column += 1;
        return true;
      }
    }
  }
  return false;
}

bool ft_is_poison(const struct ft_shape *shape, const void *values, int64_t index) {
  static const unsigned char poison[] = {0xFF, 0xFF, 0xFF, 0xFF};
  const size_t bytes = (size_t)shape->host_bytes;
  return memcmp((const char *)values + (size_t)index * bytes, poison, bytes) == 0;
}

bool ft_output_gaps_written(const struct ft_shape *shape, const void *values, const char *name,
                            struct ft_comparison *comparison) {
  if (shape->span == shape->held) return false;
  const int64_t poisoned = count_poisoned(shape, values);
  if (poisoned == shape->span - shape->held) return false;
  return ft_output_found(comparison, "wrote %lld elements into the gaps between the rows of %s",
                         (long long)(shape->span - shape->held - poisoned), name);
}

int ft_output_workspace(struct ft_problem *problem, struct ft_comparison *comparison,
                        bool *broken) {
  const struct ft_driver *driver = &problem->session->driver;
  unsigned char fences[2 * FT_FENCE_BYTES];
  *broken = false;
  if (!problem->memory[FT_WORKSPACE]) return FT_OK;
  const cu_address begin = problem->memory[FT_WORKSPACE];
  const cu_address end = problem->data[FT_WORKSPACE] + problem->bytes[FT_WORKSPACE];
  FT_TRY(ft_driver_status(driver, driver->copy_to_host(fences, begin, FT_FENCE_BYTES, NULL),
                          "cuMemcpyDtoHAsync"));
  FT_TRY(ft_driver_status(driver,
                          driver->copy_to_host(fences + FT_FENCE_BYTES, end, FT_FENCE_BYTES, NULL),
                          "cuMemcpyDtoHAsync"));
  FT_TRY(ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize"));
  *broken = ft_output_fence_broken(fences, 0, "the workspace", comparison);
  return FT_OK;
}
