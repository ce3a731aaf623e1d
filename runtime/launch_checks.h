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
  float scale, scale_log2;
  uint64_t seed, offset, seed_address, offset_address;
  uint32_t dropout_threshold;
  float dropout_rescale;
};

/* *arguments: those given, or `room` where the caller's struct is another version's. */
int ft_arguments_read(const fatune_arguments **arguments, fatune_arguments *room,
                      const fatune_arguments *given);

/* All but tensors and mask. */
int ft_run_read(struct ft_run *run, const struct ft_request *request,
                const fatune_arguments *arguments);

/* Whether the mask is one of this run; NULL where the request has none. */
int ft_run_check_mask(const struct ft_run *run, const struct ft_request *request,
                      const struct fatune_mask *mask);

/* From one batch and from one query head to the next in lists of which a head has `lists`; 0:
 * broadcast. */
void ft_mask_strides(const struct fatune_mask *mask, int64_t lists, int64_t *batch, int64_t *head);

/* One tensor of the run as it is to be checked. */
struct ft_view {
  const char *name;
  const fatune_tensor *tensor;
  int64_t batch, rows;
  int heads, dim;
  bool output;
};
int ft_view_read(const struct ft_view *view, uint64_t *address, struct ft_stride *stride);

/* Tiles of one head. Under a mask every block of it has all its tiles, the last one some beyond the
 * length. */
int64_t ft_run_tiles(int64_t length, int mask_block, int tile);

/* How many batch_heads make a section. Where tiles differ, those of a section run longest first. It
 * is as large as lets all that they load, `bytes` for each `step` batch_heads, stay in half of L2.
 * Else all tiles are alike, and one head after the other reuses L2 best: 1. */
int64_t ft_run_section(const struct ft_request *request, const struct ft_arch *arch, int64_t bytes,
                       int64_t step, int64_t pairs);

#endif
