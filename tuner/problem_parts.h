/* problem_parts.h: the inside of a problem, shared by problem*.c and weights.c. in -> out: shapes
 * and strides of the tensors, host copies, device buffers with their fences. */
#ifndef TUNER_PROBLEM_PARTS_H
#define TUNER_PROBLEM_PARTS_H

#include "tuner/problem.h"

enum { FT_FENCE_BYTES = 256 };    /* before and after each output; keeps its alignment */
enum { FT_POISON_O = 0xFFFF };    /* a NaN in both 16-bit formats, and every byte 0xFF */
#define FT_POISON_LSE 0x7FBADBADu /* a NaN no computation gives */
#define FT_FENCE_WORD 0xA5C3F00Du

/* [batch, rows, heads, dim] with its place in memory; strides and span in elements. */
struct ft_shape {
  int64_t batch, rows;
  int heads, dim;
  int64_t stride_batch, stride_row, stride_head;
  int64_t span;  /* elements of the buffer, gaps included */
  int64_t count; /* elements of the tensor */
};

enum { FT_Q, FT_K, FT_V, FT_O, FT_LSE, FT_BUFFERS };

struct ft_problem {
  fatune_session *session;
  struct ft_problem_options options;
  struct ft_shape shapes[FT_LSE]; /* of Q, K, V, O */
  uint16_t *dense[FT_O];          /* host copies of Q, K, V; NULL once dropped */
  uint8_t *blocks;
  struct ft_host_problem host;   /* points to the copies above */
  cu_address memory[FT_BUFFERS]; /* allocations */
  size_t bytes[FT_BUFFERS];      /* of the data in them, without fences */
  cu_address data[FT_BUFFERS];   /* the data; 0 without LSE */
  fatune_mask *mask;
  fatune_arguments arguments;

  /* for verification, made when first needed */
  struct ft_row *rows;
  int row_count;
  struct ft_answers *answers;
  unsigned char *o_image, *lse_image; /* what came back, fences included */
  uint16_t *o_rows;
  float *lse_rows;
  struct ft_comparison verdict; /* the last one */
};

/* Fills an input with the dense tensor in its layout, and waits. The context is current. */
int ft_problem_upload(struct ft_problem *problem, int buffer, const uint16_t *dense);

/* FT_E_MEMORY when the sizes do not fit 63 bits. */
int ft_shape_make(struct ft_shape *shape, enum ft_layout layout, int64_t batch, int64_t rows,
                  int heads, int dim);

/* Element (b, row, head, 0) of the tensor in its buffer. */
int64_t ft_shape_offset(const struct ft_shape *shape, int64_t b, int64_t row, int head);

/* count standard normal numbers as patterns of the dtype; large tensors repeat pieces of a block.
 */
int ft_random_tensor(uint16_t **tensor, enum ft_dtype dtype, int64_t count, uint64_t seed);

/* The dense tensor in its layout, gaps filled with NaN; *image is dense itself where the layout is.
 */
int ft_layout_image(const uint16_t **image, uint16_t **owned, const uint16_t *dense,
                    const struct ft_shape *shape);

/* Random bitmap of the mask, with an empty list among three or more; *density is the real one. */
int ft_random_blocks(uint8_t **blocks, const struct ft_request *request, int64_t batch, int heads,
                     uint64_t seed);

/* Splitmix64 of Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
 */
uint64_t ft_random_next(uint64_t *state);

#endif
