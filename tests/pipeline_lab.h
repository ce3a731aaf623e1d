/* pipeline_lab.h: a pipeline of TMA, mbarriers and wgmma, for the suites that plant bugs into it.
 * in -> out: rows -> its tensors; body of the kernel -> status, O against the sums; an edit of the
 * body -> the fault, in words, with its line. All compute O = (Q Y^T) Y for head 1 of Q, batch 1 of
 * Y, head 2 of O, with 384 threads a block. */
#ifndef TESTS_PIPELINE_LAB_H
#define TESTS_PIPELINE_LAB_H

#include "tests/hopper_kernel.h"

enum { PIPELINE_TILE = 64 }; /* rows of Y in a tile, and all columns */

struct pipeline_tensors {
  struct hopper_tensor q, y, o; /* as its maps 0, 1, 2 */
};

/* Small whole numbers: every sum is exact, so only the last rounding is left. Each is loaded or
 * stored in boxes of so many rows. */
struct pipeline_tensors pipeline_make(uint64_t q_rows, uint64_t y_rows, uint64_t o_rows,
                                      const unsigned box_rows[3]);
void pipeline_free(struct pipeline_tensors *tensors);

/* clusters: "__cluster_dims__(2, 1, 1)", or "". */
int pipeline_launch(struct pipeline_tensors *tensors, const char *clusters, unsigned grid,
                    const char *body);
/* Every row of O. */
void pipeline_check(const struct pipeline_tensors *tensors);

struct pipeline_bug {
  const char *name, *piece, *other; /* the one becomes the other */
  const char *at;                   /* what stands in the line of the fault */
  const char *words[3];
  bool plain;           /* a plain load sees it */
  uint64_t rows_beyond; /* of Y's map */
};

/* The launch of the body with this bug ends with its fault, in its line, in its words. */
void pipeline_catch(struct pipeline_tensors *tensors, const char *clusters, unsigned grid,
                    const char *body, const struct pipeline_bug *bug);

#endif
