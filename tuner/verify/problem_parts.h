/* problem_parts.h: the inside of a problem, shared by problem*.c and weights.c. in -> out: shapes
 * and strides of the tensors, host copies, device buffers with their fences. */
#ifndef TUNER_PROBLEM_PARTS_H
#define TUNER_PROBLEM_PARTS_H

#include "generator/text.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/problem.h"

enum { FT_FENCE_BYTES = 256 };    /* before and after each output; keeps its alignment */
enum { FT_POISON_16 = 0xFFFF };   /* a NaN in both 16-bit formats, and every byte 0xFF */
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

enum {
  FT_Q, /* tensors */
  FT_K,
  FT_V,
  FT_O,
  FT_DOUT,
  FT_DQ, /* then dK, dV, as in enum ft_gradient */
  FT_DK,
  FT_DV,
  FT_TENSORS,
  FT_LSE = FT_TENSORS,
  FT_DLSE,
  FT_WORKSPACE,
  FT_BUFFERS
};

struct ft_problem {
  fatune_session *session;
  struct ft_problem_options options;
  struct ft_shape shapes[FT_TENSORS];
  uint16_t *dense[FT_TENSORS]; /* host copies of the inputs; NULL once dropped */
  float *lse, *dlse;           /* likewise, of a backward */
  uint8_t *blocks;
  struct ft_host_problem host;   /* points to the copies above */
  cu_address memory[FT_BUFFERS]; /* allocations */
  size_t bytes[FT_BUFFERS];      /* of the data in them, without fences */
  cu_address data[FT_BUFFERS];   /* the data; 0: there is none */
  fatune_mask *mask;
  fatune_arguments arguments;

  /* for verification, made when first needed */
  struct ft_row *rows;
  int row_count;
  struct ft_answers *answers;
  unsigned char *o_image, *lse_image; /* what came back, fences included */
  uint16_t *o_rows;
  float *lse_rows;
  struct ft_gradient_answers *gradient_answers;
  unsigned char *gradient_images[FT_GRADIENTS];
  uint16_t *gradient_rows[FT_GRADIENTS];
  struct ft_comparison verdict; /* the last one */
};

/* problem_backward.c: O, LSE, dO, dLSE of a backward; Q, K, V and the mask are there. The context
 * is current. */
int ft_problem_forward(struct ft_problem *problem);

/* Device memory for a buffer, with a fence on either side. */
int ft_problem_allocate(struct ft_problem *problem, int buffer, size_t bytes, size_t fence);
int ft_problem_copy_in(struct ft_problem *problem, int buffer, const void *from);

/* problem_gradients.c: ft_problem_verify of a backward. */
int ft_problem_verify_gradients(struct ft_problem *problem, int rows, int threads,
                                struct ft_comparison *comparison);
void ft_problem_forget_gradients(struct ft_problem *problem);
/* problem_tell.c: ft_problem_explain of a wrong backward; no run is needed. */
int ft_problem_tell_gradients(struct ft_problem *problem, struct ft_text *text);

/* problem_outputs.c: what any output can have wrong, whatever its values should be. Each says so in
 * *comparison and returns true when it has. An image is a buffer with its fences. */
__attribute__((format(printf, 2, 3))) bool ft_output_found(struct ft_comparison *comparison,
                                                           const char *format, ...);
bool ft_output_fence_broken(const unsigned char *image, size_t bytes, const char *name,
                            struct ft_comparison *comparison);
/* `what` names its rows: "row" or "key". */
bool ft_output_unwritten(const struct ft_shape *shape, enum ft_dtype dtype, const uint16_t *values,
                         const char *name, const char *what, struct ft_comparison *comparison);
/* Of a tensor that holds no poison any more, so that what is left of it must be just the gaps. */
bool ft_output_gaps_written(const struct ft_shape *shape, const uint16_t *values, const char *name,
                            struct ft_comparison *comparison);
/* The buffer with its fences, to host memory, and waits. The context is current. */
int ft_output_fetch(struct ft_problem *problem, int buffer, unsigned char *to);

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
