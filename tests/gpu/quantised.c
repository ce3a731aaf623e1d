/* quantised.c: what fatune_quantise should make of a tensor, in float64.
 * in -> out: tensor, its bytes and descales -> Check's verdict. Tensors have up to 40 million
 * numbers, so what depends on a pattern or a column alone is computed once. */
#include "tests/gpu/quantised.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/quantise_lab.h"
#include "tuner/verify/halves.h"

enum { PATTERNS = 0x10000, BYTES = 0x100 };

/* factor: of a column before the Hadamard matrix of +-1. */
struct numbers {
  double of_pattern[PATTERNS], of_byte[BYTES], factor[QUANTISED_DIM_MOST];
};

static int rows_of_descale(const struct quantised_tensor *tensor) {
  return tensor->descale_rows > 0 ? tensor->descale_rows : tensor->rows;
}

size_t quantised_elements(const struct quantised_tensor *tensor) {
  return (size_t)tensor->heads * (size_t)tensor->rows * (size_t)tensor->dim;
}

size_t quantised_descales(const struct quantised_tensor *tensor) {
  const int each = rows_of_descale(tensor);
  return (size_t)tensor->heads * (size_t)((tensor->rows + each - 1) / each);
}

/* Columns that are rotated together. */
static int block_of(const struct quantised_tensor *tensor) {
  return tensor->rotate ? tensor->dim & -tensor->dim : 1;
}

static struct numbers *make_numbers(const struct quantised_tensor *tensor, uint64_t seed) {
  struct numbers *const numbers = malloc(sizeof *numbers);
  ck_assert_ptr_nonnull(numbers);
  for (int n = 0; n < PATTERNS; n++)
    numbers->of_pattern[n] = ft_from_dtype(tensor->dtype, (uint16_t)n);
  for (int n = 0; n < BYTES; n++) numbers->of_byte[n] = (double)ft_from_e4m3((uint8_t)n);
  for (int c = 0; c < tensor->dim; c++)
    numbers->factor[c] = tensor->rotate ? quantise_sign(seed, c) / sqrt(block_of(tensor)) : 1;
  return numbers;
}

static const uint16_t *row_of(const struct quantised_tensor *tensor, const uint16_t *x, int head,
                              int row) {
  const size_t number = tensor->heads_inside ? (size_t)row * (size_t)tensor->heads + (size_t)head
                                             : (size_t)head * (size_t)tensor->rows + (size_t)row;
  return x + number * (size_t)tensor->dim;
}

/* Sums and differences of columns that differ in one bit, bit after bit. */
static void expected_row(double *y, const struct quantised_tensor *tensor,
                         const struct numbers *numbers, const uint16_t *x) {
  const int block = block_of(tensor);
  for (int c = 0; c < tensor->dim; c++) y[c] = numbers->of_pattern[x[c]] * numbers->factor[c];
  for (int step = 1; step < block; step *= 2)
    for (int first = 0; first < tensor->dim; first += 2 * step)
      for (int c = first; c < first + step; c++) {
        const double a = y[c], b = y[c + step];
        y[c] = a + b;
        y[c + step] = a - b;
      }
}

/* As quantise_size. */
static double size_of_row(const struct quantised_tensor *tensor, const struct numbers *numbers,
                          const uint16_t *x) {
  const int block = block_of(tensor);
  double largest = 0;
  for (int first = 0; first < tensor->dim; first += block) {
    double sum = 0;
    for (int c = first; c < first + block; c++) sum += fabs(numbers->of_pattern[x[c]]);
    largest = sum > largest ? sum : largest;
  }
  return largest;
}

static double weight_of_row(const struct quantised_tensor *tensor, int row) {
  return tensor->rotate && tensor->descale_rows == 0 ? quantise_weight(row, tensor->rows) : 1;
}

static void check_row(const double *y, const struct quantised_tensor *tensor,
                      const struct numbers *numbers, const uint8_t *out, double descale, int head,
                      int row) {
  int wrong = 0, c = 0; /* c: the first that is */
  for (int n = 0; n < tensor->dim; n++) {
    if (quantise_is_near(numbers->of_byte[out[n]] * descale, y[n], descale)) continue;
    if (wrong++ == 0) c = n;
  }
  if (wrong == 0) return;
  ck_abort_msg("head %d row %d column %d, and %d others of the row: %g, not %g", head, row, c,
               wrong - 1, numbers->of_byte[out[c]] * descale, y[c]);
}

/* The rows of one descale. out: the first of its rows. */
static void check_rows(const struct quantised_tensor *tensor, const struct numbers *numbers,
                       const uint16_t *x, const uint8_t *out, double descale, int head, int first,
                       int end) {
  double y[QUANTISED_DIM_MOST] = {0}, largest = 0;
  for (int row = first; row < end; row++) {
    const double size =
        weight_of_row(tensor, row) * size_of_row(tensor, numbers, row_of(tensor, x, head, row));
    largest = size > largest ? size : largest;
  }
  ck_assert_double_eq_tol(descale, quantise_descale(largest, tensor->dim, tensor->rotate),
                          1e-5 * descale);
  for (int row = first; row < end; row++, out += tensor->dim) {
    expected_row(y, tensor, numbers, row_of(tensor, x, head, row));
    check_row(y, tensor, numbers, out, descale, head, row);
  }
}

void quantised_check(const struct quantised_tensor *tensor, uint64_t seed, const uint16_t *x,
                     const uint8_t *out, const float *descale) {
  const int each = rows_of_descale(tensor), blocks = (tensor->rows + each - 1) / each;
  struct numbers *const numbers = make_numbers(tensor, seed);
  for (int n = 0; n < tensor->heads * blocks; n++) {
    const int head = n / blocks, first = n % blocks * each;
    const int end = first + each < tensor->rows ? first + each : tensor->rows;
    check_rows(tensor, numbers, x, out, (double)descale[n], head, first, end);
    out += (size_t)(end - first) * (size_t)tensor->dim;
  }
  free(numbers);
}
