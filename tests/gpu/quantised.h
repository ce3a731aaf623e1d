/* quantised.h: what fatune_quantise should make of a tensor, in float64.
 * in -> out: tensor, its bytes and descales -> Check's verdict. */
#ifndef TESTS_GPU_QUANTISED_H
#define TESTS_GPU_QUANTISED_H

#include <stddef.h>
#include <stdint.h>

#include "generator/request.h"

enum { QUANTISED_DIM_MOST = 256 };

/* One batch entry. x is [heads, rows, dim], or with heads_inside [rows, heads, dim]; the bytes are
 * [heads, rows, dim], the descales [heads, blocks of rows]. */
struct quantised_tensor {
  enum ft_dtype dtype;
  int heads, rows, dim, descale_rows, rotate, heads_inside;
};

size_t quantised_elements(const struct quantised_tensor *tensor);
size_t quantised_descales(const struct quantised_tensor *tensor);

/* seed: of the rotation's signs. A failure tells row and column. */
void quantised_check(const struct quantised_tensor *tensor, uint64_t seed, const uint16_t *x,
                     const uint8_t *out, const float *descale);

#endif
