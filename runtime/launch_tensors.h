/* launch_tensors.h: the memory of a run, as the emulator is to know it.
 * in -> out: arguments of a kernel -> tensors. Memory of the driver's, as the lists of most masks
 * are, needs no word. */
#ifndef RUNTIME_LAUNCH_TENSORS_H
#define RUNTIME_LAUNCH_TENSORS_H

#include "generator/arguments.h"
#include "generator/request.h"
#include "runtime/emulator/tensor.h"
#include "runtime/fatune.h"

struct ft_launch_tensors {
  struct ft_emulated_tensor tensors[FT_TENSORS_MOST];
  int count;
  /* What the tensors have in common. Rows and heads are counted as the caller does, unpacked. */
  enum ft_dtype dtype;
  int64_t batch, nq, nk, heads_q, heads_kv;
};

void ft_launch_tensors_begin(struct ft_launch_tensors *all, enum ft_dtype dtype,
                             const struct ft_arg_sequence *sequence);

/* Whose rows and heads a tensor has. */
enum ft_tensor_rows { FT_OF_QUERIES, FT_OF_KEYS };

/* Each of these adds a tensor and returns it, not writable. Here [batch, rows, heads, dim], */
struct ft_emulated_tensor *ft_add_tensor(struct ft_launch_tensors *all, const char *name,
                                         const struct ft_arg_tensor *tensor,
                                         enum ft_tensor_rows rows, int dim);
/* the same of what the request's pass writes, */
struct ft_emulated_tensor *ft_add_output(struct ft_launch_tensors *all, const char *name,
                                         const struct ft_arg_tensor *tensor,
                                         enum ft_tensor_rows rows, int dim,
                                         const struct ft_request *request);
/* a float for each query row, [batch, heads_q, nq], */
struct ft_emulated_tensor *ft_add_statistic(struct ft_launch_tensors *all, const char *name,
                                            uint64_t address);
/* words of the workspace, [tiles, of_tile]. */
struct ft_emulated_tensor *ft_add_work(struct ft_launch_tensors *all, const char *name,
                                       uint64_t address, int64_t tiles, int64_t of_tile);

/* The lists of a mask where the caller lent their memory; mask may be NULL. */
void ft_add_lent_mask(struct ft_launch_tensors *all, const struct fatune_mask *mask);

/* Seed and offset, where the kernel reads them from device memory. */
void ft_add_seeds(struct ft_launch_tensors *all, const struct ft_arg_dropout *dropout);

#endif
