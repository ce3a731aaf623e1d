/* gpu_outputs.h: raw outputs of a problem, kept to be compared with those of another device.
 * in -> out: problem after a run -> O and LSE as they lie in memory; two of them -> how far apart,
 * over how far they may be.
 *
 * Both sides run one algorithm in the same tiles, so only roundings can differ. Let u be half a
 * unit in the last place of 1. P is rounded to the dtype (2 u when the two sides round to different
 * neighbours), O again, fp32 sums and 2^x err by far less (GPU_SLACK). So an element of O may be
 * off by 2 u max |v| over the keys of its column, times the rescaling of dropout, and by a unit in
 * its last place; and as the signs of V are random, a row of O in L2 by 4 u of its norm, where a
 * lost tile is off by some tenths of it. Where dropout leaves a row nothing but small weights, P
 * and O are subnormal in fp16, and each may be off by the smallest subnormal number more. LSE: what
 * each side may be off float64 (tuner/verify/answers.c), twice. */
#ifndef TESTS_GPU_GPU_OUTPUTS_H
#define TESTS_GPU_GPU_OUTPUTS_H

#include "tests/gpu/gpu_call.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/shape.h"

/* O with its gaps, as it lies in memory; LSE where there is one. To be freed with gpu_output_free.
 */
int gpu_output_fetch(struct gpu_output *output, const struct ft_problem *problem);

int gpu_output_save(const struct gpu_output *output, const char *path);
/* The counts of output say what the file must hold. */
int gpu_output_load(struct gpu_output *output, const char *path);

/* What a comparison must know of a problem that is no more. */
struct gpu_measure {
  struct ft_request request;
  struct ft_shape shape;        /* of O */
  struct ft_packed_rows packed; /* a copy of the shape's, of sequences of different lengths */
  double rescale;               /* of dropout */
  double *largest_v;            /* [batch][kv head][column] */
};
int gpu_measure_make(struct gpu_measure *measure, const struct ft_problem *problem);
void gpu_measure_free(struct gpu_measure *measure);

struct gpu_agreement {
  double ratio;             /* the largest of difference / allowed; right when <= 1 */
  char worst[160];          /* where that is */
  long elements, differing; /* of O */
};
void gpu_outputs_compare(struct gpu_agreement *agreement, const struct gpu_measure *measure,
                         const struct gpu_output *a, const struct gpu_output *b);

#endif
