/* problem_parts.h: the inside of a problem, shared by problem*.c and weights.c. in -> out: shapes
 * and strides of the tensors, host copies, device buffers with their fences. */
#ifndef TUNER_PROBLEM_PARTS_H
#define TUNER_PROBLEM_PARTS_H

#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "tuner/verify/answers.h"
#include "tuner/verify/gradient_answers.h"
#include "tuner/verify/problem_descales.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/problem_score.h"
#include "tuner/verify/problem_sinks.h"
#include "tuner/verify/sequences.h"
#include "tuner/verify/shape.h"

enum { FT_FENCE_BYTES = 256 };    /* before and after each output; keeps its alignment */
enum { FT_POISON_16 = 0xFFFF };   /* a NaN in both 16-bit formats, and every byte 0xFF */
#define FT_POISON_LSE 0x7FBADBADu /* a NaN no computation gives */
#define FT_FENCE_WORD 0xA5C3F00Du

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
  FT_LENGTHS, /* of sequences: where those of Q begin, those of K, what they use of each */
  FT_PAGES,   /* the page table */
  FT_WORKSPACE,
  FT_BUFFERS
};

struct ft_problem {
  fatune_session *session;
  struct ft_problem_options options;
  struct ft_shape shapes[FT_TENSORS];
  void *dense[FT_TENSORS]; /* host copies of the inputs; NULL once dropped */
  float *lse, *dlse;       /* likewise, of a backward */
  uint8_t *blocks;
  struct ft_sequences sequences; /* of a ragged problem */
  struct ft_host_problem host;   /* points to the copies above */
  cu_address memory[FT_BUFFERS]; /* of the allocations */
  size_t bytes[FT_BUFFERS];      /* of the data in them, without fences */
  cu_address data[FT_BUFFERS];   /* of the data; 0: the problem has no such buffer */
  fatune_mask *mask;
  struct ft_problem_score score;
  struct ft_problem_sinks sinks;
  struct ft_problem_descales descales;
  fatune_arguments arguments;

  /* for verification; made when first needed */
  struct ft_row *rows;
  int row_count;
  struct ft_answers *answers;
  unsigned char *o_image, *lse_image; /* as the kernel wrote them, fences included */
  unsigned char *again;               /* an output of a second run, and how many bytes fit */
  size_t again_bytes;
  void *o_rows;
  float *lse_rows;
  struct ft_gradient_answers *gradient_answers;
  unsigned char *gradient_images[FT_GRADIENTS];
  void *gradient_rows[FT_GRADIENTS];
  struct ft_comparison verdict; /* of the last verification */
};

#endif
