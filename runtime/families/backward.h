/* backward.h: what the launches of all backward families share: fatune_work_list (the list of key
 * tiles of a ragged run) and three kernels, fatune_prepare (row statistics, zeros), fatune_kernel
 * (dK, dV, sums of dQ), fatune_convert (dQ). */
#ifndef RUNTIME_FAMILIES_BACKWARD_H
#define RUNTIME_FAMILIES_BACKWARD_H

#include "runtime/launch_family.h"

enum ft_backward_kernel {
  FT_BACKWARD_LIST,
  FT_BACKWARD_PREPARE,
  FT_BACKWARD_MAIN,
  FT_BACKWARD_CONVERT,
  FT_BACKWARD_KERNELS
};

/* Words of one query tile in each part of the workspace; dq_sum, counters and sink_sums may be
 * empty. part_sums: words of dV and dK of a part of a key tile's walk. blocks: that have a key tile
 * together. part_steps: walks under a block mask with more steps may be divided; 0: none is.
 * takes_tiles: a block has several, one after the other. early_dq: the last kernel begins with
 * the L2 sections whose dQ is complete. */
struct ft_backward_work {
  int64_t dq_sum, row_stats, counters, sink_sums, part_sums;
  int blocks, part_steps;
  bool takes_tiles, early_dq;
};

/* The sink_sums of a request, where blocks of the first kernel have so many threads. */
int64_t ft_backward_sink_sums(const struct ft_request *request, int prepare_threads);

/* Fills all of params and, as far as the plan has one, score. q_tiles, k_tiles: over all heads;
 * each part of a divided key tile counts as one. */
int ft_backward_prepare(struct ft_backward_params *params, struct ft_arg_score *score,
                        const struct ft_launch_plan *plan, const struct ft_backward_work *work,
                        const fatune_arguments *arguments, int64_t *q_tiles, int64_t *k_tiles);
int ft_backward_workspace(const struct ft_launch_plan *plan, const struct ft_backward_work *work,
                          const fatune_arguments *arguments, size_t *bytes);
/* Each kernel sees all tensors and may write its own results. tiles: q_tiles. */
void ft_backward_describe(const struct ft_backward_params *p, const struct ft_request *request,
                          const struct ft_backward_work *work, int64_t tiles,
                          enum ft_backward_kernel kernel, struct ft_launch_tensors *tensors);

#endif
