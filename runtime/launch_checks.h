/* launch_checks.h: the arguments of a run, checked.
 * in -> out: request + fatune_arguments -> struct ft_run; tensor as it should be -> address,
 * strides; lengths -> tiles. */
#ifndef RUNTIME_LAUNCH_CHECKS_H
#define RUNTIME_LAUNCH_CHECKS_H

#include "generator/arch.h"
#include "generator/request.h"
#include "generator/visibility.h"
#include "runtime/fatune.h"
#include "generator/arguments.h"

/* The numbers of a run; lengths are the plan's where the caller gave 0. */
struct ft_run {
  int64_t batch, nq, nk;
  int heads_q, heads_kv;
  struct ft_visibility visibility;
  struct ft_arg_softmax softmax;
  struct ft_arg_dropout dropout;
};

/* *arguments: those given, or `room` where the caller's struct is another version's. */
int ft_arguments_read(const fatune_arguments **arguments, fatune_arguments *room,
                      const fatune_arguments *given);

/* All but tensors and mask. */
int ft_run_read(struct ft_run *run, const struct ft_request *request,
                const fatune_arguments *arguments);

/* What a query sees. FT_E_ARGUMENT where the mask is not one of this run; NULL where the request
 * has none. */
int ft_run_read_visibility(const struct ft_run *run, const struct ft_request *request,
                           const struct fatune_mask *mask, struct ft_arg_visibility *visibility);

/* One tensor of the run as it is to be checked. */
struct ft_view {
  const char *name;
  const fatune_tensor *tensor;
  int64_t batch, rows;
  int heads, dim;
  bool output;
};
int ft_view_read(const struct ft_view *view, struct ft_arg_tensor *tensor);

/* Tiles of one head. Under a mask every block of it has all its tiles, the last one some beyond the
 * length. */
int64_t ft_run_tiles(int64_t length, int mask_block, int tile);

/* How many of all batch_heads make a section. Where tiles differ, those of a section run longest
 * first. It is as large as lets all that they load, `bytes` for each `group` batch_heads, stay in
 * half of L2. Else all tiles are alike, and one head after the other reuses L2 best: 1. */
int64_t ft_run_l2_section(const struct ft_request *request, const struct ft_arch *arch,
                          int64_t bytes, int64_t group, int64_t batch_heads);

#endif
