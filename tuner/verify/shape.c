/* shape.c: where the elements of a tensor lie.
 * in -> out: layout + sizes -> strides, offsets; a dense tensor -> its image in memory. */

#include "tuner/verify/shape.h"

#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

/* a * b + c, or FT_E_MEMORY on overflow: nobody has 2^63 elements. */
int ft_multiply_add(int64_t a, int64_t b, int64_t c, int64_t *result) {
  if (!__builtin_mul_overflow(a, b, result) && !__builtin_add_overflow(*result, c, result) &&
      *result < INT64_MAX / 4) {
    return FT_OK;
  }
  return ft_fail(FT_E_MEMORY, "a tensor of this request has more than 2^61 elements");
}

int ft_shape_make(struct ft_shape *shape, enum ft_layout layout, int element_bytes, int64_t batch,
                  int64_t rows, int heads, int dim) {
  enum { ALIGNMENT = 16 }; /* of rows, in bytes */
  /* The gaps of the padded layout differ from one another, so that a kernel that confuses two
   * strides is found. */
  const int least = ALIGNMENT / element_bytes;
  const int gap = layout == FT_LAYOUT_PADDED ? least : layout == FT_LAYOUT_WIDE ? 3 * least : 0;
  *shape = (struct ft_shape){.batch = batch,
                             .rows = rows,
                             .heads = heads,
                             .dim = dim,
                             .host_bytes = element_bytes == 1 ? 2 : element_bytes};
  if (layout == FT_LAYOUT_BHSD) {
    shape->stride_row = dim;
    FT_TRY(ft_multiply_add(rows, dim, 0, &shape->stride_head));
    FT_TRY(ft_multiply_add(shape->stride_head, heads, 0, &shape->stride_batch));
  } else {
    shape->stride_head = dim + gap;
    FT_TRY(ft_multiply_add(shape->stride_head, heads, 3 * gap, &shape->stride_row));
    FT_TRY(ft_multiply_add(shape->stride_row, rows, 5 * gap, &shape->stride_batch));
  }
  FT_TRY(ft_multiply_add(shape->stride_batch, batch, 0, &shape->span));
  shape->count = shape->held = batch * rows * heads * dim; /* at most the span */
  return FT_OK;
}

int ft_shape_make_packed(struct ft_shape *shape, enum ft_layout layout, int element_bytes,
                         const struct ft_packed_rows *packed, int64_t sequences, int heads,
                         int dim) {
  FT_TRY(ft_shape_make(shape, layout, element_bytes, 1, packed->total, heads, dim));
  shape->batch = sequences;
  shape->rows = packed->longest;
  shape->packed = packed;
  shape->held = packed->in_use * heads * dim;
  FT_TRY(ft_multiply_add(sequences * packed->longest, (int64_t)heads * dim, 0, &shape->count));
  return FT_OK;
}

int ft_shape_make_paged(struct ft_shape *shape, enum ft_layout layout, int element_bytes,
                        const struct ft_packed_rows *packed, int64_t sequences, int heads,
                        int dim) {
  const struct ft_page_table *const table = &packed->table;
  FT_TRY(ft_shape_make(shape, layout, element_bytes, table->pages, table->page, heads, dim));
  shape->batch = sequences;
  shape->rows = packed->longest;
  shape->packed = packed;
  shape->held = 0; /* pages may be shared: all of the pool is filled with NaN first */
  FT_TRY(ft_multiply_add(sequences * packed->longest, (int64_t)heads * dim, 0, &shape->count));
  return FT_OK;
}

int64_t ft_shape_rows(const struct ft_shape *shape, int64_t b) {
  return shape->packed ? shape->packed->used[b] : shape->rows;
}

static int64_t offset_in_pages(const struct ft_shape *shape, int64_t b, int64_t row, int head) {
  const struct ft_page_table *const table = &shape->packed->table;
  const int64_t page = table->numbers[b * table->columns + row / table->page];
  return page * shape->stride_batch + row % table->page * shape->stride_row +
         head * shape->stride_head;
}

int64_t ft_shape_offset(const struct ft_shape *shape, int64_t b, int64_t row, int head) {
  if (shape->packed && shape->packed->table.page > 0) return offset_in_pages(shape, b, row, head);
  const int64_t in_head = shape->packed ? (shape->packed->starts[b] + row) * shape->stride_row
                                        : b * shape->stride_batch + row * shape->stride_row;
  return in_head + head * shape->stride_head;
}

int ft_layout_image(const void **image, void **owned, const void *dense,
                    const struct ft_shape *shape) {
  *owned = NULL;
  *image = dense;
  const bool as_it_is = !shape->packed && shape->stride_head == shape->dim &&
                        shape->span == shape->count &&
                        shape->stride_row == (int64_t)shape->heads * shape->dim;
  if (as_it_is) return FT_OK;

  const int64_t bytes = shape->host_bytes, row_bytes = shape->dim * bytes;
  const char *from = dense;
  char *const made = malloc((size_t)(shape->span * bytes));
  if (!made)
    return ft_fail(FT_E_MEMORY, "no memory for a tensor of %lld elements", (long long)shape->span);
  if (shape->span != shape->held) memset(made, 0xFF, (size_t)(shape->span * bytes)); /* NaN */
  for (int64_t b = 0; b < shape->batch; b++) {
    for (int64_t row = 0; row < shape->rows; row++) {
      if (row >= ft_shape_rows(shape, b)) {
        from += shape->heads * row_bytes;
        continue;
      }
      for (int head = 0; head < shape->heads; head++) {
        memcpy(made + ft_shape_offset(shape, b, row, head) * bytes, from, (size_t)row_bytes);
        from += row_bytes;
      }
    }
  }
  *image = *owned = made;
  return FT_OK;
}

/* ---- numbers ---- */
