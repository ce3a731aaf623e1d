/* shape.h: where the elements of a tensor lie.
 * in -> out: layout + sizes -> strides, offsets; a dense tensor -> its image in memory. */
#ifndef TUNER_SHAPE_H
#define TUNER_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

enum ft_layout {                   /* order of the dims in memory, outermost first */
                 FT_LAYOUT_BSHD,   /* batch, seq, head, dim */
                 FT_LAYOUT_BHSD,   /* batch, head, seq, dim */
                 FT_LAYOUT_PADDED, /* BSHD with odd gaps between rows, heads and batches, filled
                                      with NaN */
                 FT_LAYOUT_WIDE    /* as PADDED with other gaps: for dO and the gradients where Q is
                                      padded */
};

struct ft_page_table {
  int page;               /* rows of one; 0: rows are in no pages */
  int64_t columns, pages; /* of the table; that there are, some of them unused */
  int32_t *numbers;       /* [sequences, columns] */
};

/* The rows of sequences of different lengths: one behind the other, used from the first on. */
struct ft_packed_rows {
  int32_t *starts;            /* [sequences + 1] */
  int32_t *used;              /* [sequences] */
  int64_t longest;            /* of those used; 1 at least */
  int64_t in_use;             /* of all sequences together */
  int64_t total;              /* rows that there are */
  struct ft_page_table table; /* where they are in pages, instead of one behind the other */
};

/* A tensor [batch, rows, heads, dim] and its place in memory; strides and span in elements. Of
 * sequences of different lengths rows is the longest one's length, host copies have room for so
 * many of each, and stride_batch is not used. */
struct ft_shape {
  int64_t batch, rows;
  int heads, dim;
  int64_t stride_batch, stride_row, stride_head;
  int64_t span;                        /* elements of the buffer, gaps included */
  int64_t count;                       /* elements of the tensor's host copy */
  int64_t held;                        /* elements of the buffer that are the tensor's */
  int host_bytes;                      /* of an element of the host copy: 2 of e4m3, too */
  const struct ft_packed_rows *packed; /* NULL: all batch entries have `rows` */
};

/* a * b + c of numbers >= 0; FT_E_MEMORY on overflow. */
int ft_multiply_add(int64_t a, int64_t b, int64_t c, int64_t *result);

/* FT_E_MEMORY when the sizes do not fit 63 bits. */
int ft_shape_make(struct ft_shape *shape, enum ft_layout layout, int element_bytes, int64_t batch,
                  int64_t rows, int heads, int dim);

/* Of the rows of sequences, one behind the other. `packed` must stay. */
int ft_shape_make_packed(struct ft_shape *shape, enum ft_layout layout, int element_bytes,
                         const struct ft_packed_rows *packed, int64_t sequences, int heads,
                         int dim);

/* Of the rows of sequences that lie in pages. The layout says where the rows of a page lie, as if
 * pages were batch entries. `packed` must stay. */
int ft_shape_make_paged(struct ft_shape *shape, enum ft_layout layout, int element_bytes,
                        const struct ft_packed_rows *packed, int64_t sequences, int heads, int dim);

/* Rows of a batch entry. */
int64_t ft_shape_rows(const struct ft_shape *shape, int64_t b);

/* Element (b, row, head, 0) of the tensor in its buffer. */
int64_t ft_shape_offset(const struct ft_shape *shape, int64_t b, int64_t row, int head);

/* The dense tensor in its layout, gaps filled with NaN. *image is `dense` itself if the layout is
 * dense. */
int ft_layout_image(const void **image, void **owned, const void *dense,
                    const struct ft_shape *shape);

#endif
