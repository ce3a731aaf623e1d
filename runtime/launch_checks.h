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
  bool ragged;          /* batch is that of the sequences; nq and nk are those of all together */
  int64_t tensor_batch; /* of the tensors: 1 where ragged */
  int page;             /* rows of a page of K and V; 0: they are in none */
  struct ft_visibility visibility;
  struct ft_alignments alignments; /* what it is of any lengths */
  struct ft_arg_softmax softmax;
  struct ft_arg_dropout dropout;
};

/* Sets *arguments to those given, or to `room` if the caller's struct is of another version. */
int ft_arguments_read(const fatune_arguments **arguments, fatune_arguments *room,
                      const fatune_arguments *given);

/* Checks the lengths and counts alone. */
int ft_run_read_extents(const struct ft_request *request, const fatune_arguments *arguments);

/* Reads them; the rest of the run is 0. */
int ft_run_read_lengths(struct ft_run *run, const struct ft_request *request,
                        const fatune_arguments *arguments);

/* Checks and reads everything but tensors and mask. */
int ft_run_read(struct ft_run *run, const struct ft_request *request,
                const fatune_arguments *arguments);

/* Reads what a query sees. FT_E_ARGUMENT if the mask is not one of this run, or is missing, or is
 * given where the request has none. */
int ft_run_read_visibility(const struct ft_run *run, const struct ft_request *request,
                           const struct fatune_mask *mask, struct ft_arg_visibility *visibility);

/* Reads the sinks, or their gradient (name: "sinks", "dsinks"), which are there exactly where they
 * are wanted. */
int ft_run_read_sinks(const char *name, const float *data, bool wanted, uint64_t *address);

/* Reads the descales of Q, K and V; or, of a request that has none, checks that none are given. */
int ft_run_read_descales(struct ft_arg_descales *descales, const fatune_arguments *arguments);
/* Of K and V beside a Q of 16 bits. */
int ft_run_read_kv_descales(struct ft_arg_descales *descales, const fatune_arguments *arguments);
int ft_run_read_no_descales(const fatune_arguments *arguments);

/* One tensor of the run as it is to be checked. */
struct ft_view {
  const char *name;
  const fatune_tensor *tensor;
  int64_t batch, rows;
  int heads, dim;
  bool output;
  int element_bytes;
};
int ft_view_read(const struct ft_view *view, struct ft_arg_tensor *tensor);
/* Kernels of 16-bit operands count the strides of all tensors in units of two bytes. This turns
 * strides in elements of so many bytes into those. */
void ft_tensor_count_in_halves(struct ft_arg_tensor *tensor, int element_bytes);

#endif
