/* tiled_backward.h: what the launches of backward families with tensor maps share.
 * in -> out: plan + fatune_arguments + the shape of their blocks -> struct
 * ft_tiled_backward_params, three kernels, tensor maps. The first and the last kernel take the
 * argument's first member alone, or with a score function all of it. */
#ifndef RUNTIME_FAMILIES_TILED_BACKWARD_H
#define RUNTIME_FAMILIES_TILED_BACKWARD_H

#include "runtime/families/backward.h"

struct ft_tiled_backward {
  struct ft_backward_work work;
  int prepare_threads;
  int dq_threads, dq_smem; /* of a block of the last kernel */
};

/* Words of a tile of queries: its dQ has `sums` sums of d_pad columns, and if the request is
 * deterministic each sum has a counter of tickets for each of so many adders. One
 * block has a key tile. */
struct ft_backward_work ft_tiled_backward_work(const struct ft_launch_plan *plan, int sums,
                                               int d_pad, int adders, int prepare_threads);
int ft_tiled_backward_prepare(struct ft_launch *launch, const struct ft_tiled_backward *tiled,
                              const fatune_arguments *arguments);
/* Each kernel sees all tensors and may write its own results. */
void ft_tiled_backward_describe(const struct ft_launch *launch, const struct ft_backward_work *work,
                                int kernel, struct ft_launch_tensors *tensors);
/* K and V go to a block in tiles of so many keys each, dK and dV come from each warpgroup of 64. */
int ft_tiled_backward_map(struct ft_launch *launch, int keys_k, int keys_v,
                          const struct ft_driver *driver);

#endif
