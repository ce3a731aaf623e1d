/* launch_score.h: what a score function captures, checked.
 * in -> out: score + fatune_arguments -> struct ft_arg_score; struct ft_arg_score -> the memory
 * that a run may touch. */
#ifndef RUNTIME_LAUNCH_SCORE_H
#define RUNTIME_LAUNCH_SCORE_H

#include "generator/arguments.h"
#include "generator/score/registry.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_family.h"
#include "runtime/launch_tensors.h"

/* FT_E_ARGUMENT where something is missing, unknown, or a tensor is smaller than the text says.
 * What the score makes is in natural units, and the softmax's scale is made to fit. workspace: of
 * ft_score_workspace's size, in multiples of 256. */
int ft_score_arguments_read(struct ft_arg_score *to, struct ft_arg_softmax *softmax,
                            const struct ft_launch_plan *plan, const struct ft_run *run,
                            const fatune_arguments *arguments, uint64_t workspace);

/* FT_E_ARGUMENT where queries or keys are more than a score function can number. */
int ft_score_check_length(const char *name, int64_t length);

/* Bytes in which a deterministic backward sums gradients up. */
int ft_score_workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                       int64_t *bytes);

/* The tensor whose rows TMA loads (ft_exponent.tile_has_rows), as a map counts it: columns are
 * keys, rows queries, and what else there is stands for head and batch. */
struct ft_score_tile {
  struct ft_arg_tensor tensor;
  int columns, rows, heads, batch;
  enum ft_dtype dtype;
};

/* False where it lies as TMA cannot take it: kernels find that out, too, and do not ask for it. */
bool ft_score_tile_of(struct ft_score_tile *tile, const struct ft_arg_score *from,
                      const struct ft_known_score *score);

void ft_add_captured(struct ft_launch_tensors *all, const struct ft_arg_score *from,
                     const struct ft_known_score *score);
/* is_last: of the kernel that writes what was summed up in the workspace. */
void ft_add_gradients(struct ft_launch_tensors *all, const struct ft_arg_score *from,
                      const struct ft_launch_plan *plan, bool is_last);

#endif
