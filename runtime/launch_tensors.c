/* launch_tensors.c: the memory of a run, as the emulator is to know it.
 * in -> out: arguments of a kernel -> struct ft_emulated_tensor of each. */
#include "runtime/launch_tensors.h"

#include "generator/families/packed_heads.h"
#include "runtime/mask.h"

void ft_launch_tensors_begin(struct ft_launch_tensors *all, enum ft_dtype dtype,
                             const struct ft_arg_sequence *sequence) {
  all->count = 0;
  all->dtype = dtype;
  all->batch = sequence->batch;
  const struct ft_pack pack = ft_pack_of_code(sequence->pack_code);
  all->nq = sequence->nq >> pack.bits;
  all->nk = sequence->nk;
  all->heads_q = (int64_t)sequence->heads_q * pack.heads;
  all->heads_kv = sequence->heads_kv;
}

static struct ft_emulated_tensor *add(struct ft_launch_tensors *all, const char *name,
                                      uint64_t address, int element_bytes) {
  struct ft_emulated_tensor *const tensor = &all->tensors[all->count++];
  *tensor = (struct ft_emulated_tensor){
      .name = name, .address = address, .element_bytes = element_bytes, .extents = {1, 1, 1, 1}};
  return tensor;
}

static void lay_out(struct ft_emulated_tensor *tensor, const int64_t extents[FT_TENSOR_DIMS],
                    const int64_t strides[FT_TENSOR_DIMS]) {
  for (int n = 0; n < FT_TENSOR_DIMS; n++) {
    tensor->extents[n] = extents[n];
    tensor->strides[n] = strides[n];
  }
}

struct ft_emulated_tensor *ft_add_tensor(struct ft_launch_tensors *all, const char *name,
                                         const struct ft_arg_tensor *tensor,
                                         enum ft_tensor_rows rows, int dim) {
  struct ft_emulated_tensor *const added = add(all, name, tensor->data, ft_dtype_bytes(all->dtype));
  const bool of_queries = rows == FT_OF_QUERIES;
  const int64_t extents[] = {all->batch, of_queries ? all->nq : all->nk,
                             of_queries ? all->heads_q : all->heads_kv, dim};
  const int64_t strides[] = {tensor->stride.batch, tensor->stride.row, tensor->stride.head, 1};
  lay_out(added, extents, strides);
  return added;
}

struct ft_emulated_tensor *ft_add_output(struct ft_launch_tensors *all, const char *name,
                                         const struct ft_arg_tensor *tensor,
                                         enum ft_tensor_rows rows, int dim,
                                         const struct ft_request *request) {
  struct ft_emulated_tensor *const added = ft_add_tensor(all, name, tensor, rows, dim);
  const int unit = ft_outputs_are_wide(request) ? 2 : 1; /* ft_tensor_count_in_halves */
  added->element_bytes = ft_dtype_bytes(ft_output_dtype(request));
  for (int n = 0; n + 1 < FT_TENSOR_DIMS; n++) added->strides[n] /= unit;
  return added;
}

struct ft_emulated_tensor *ft_add_statistic(struct ft_launch_tensors *all, const char *name,
                                            uint64_t address) {
  struct ft_emulated_tensor *const added = add(all, name, address, sizeof(float));
  const int64_t extents[] = {all->batch, all->nq, all->heads_q, 1};
  const int64_t strides[] = {all->heads_q * all->nq, 1, all->nq, 1};
  lay_out(added, extents, strides);
  return added;
}

struct ft_emulated_tensor *ft_add_work(struct ft_launch_tensors *all, const char *name,
                                       uint64_t address, int64_t tiles, int64_t of_tile) {
  enum { WORD_BYTES = 4 };
  struct ft_emulated_tensor *const added = add(all, name, address, WORD_BYTES);
  const int64_t extents[] = {1, tiles, 1, of_tile}, strides[] = {0, of_tile, 0, 1};
  lay_out(added, extents, strides);
  return added;
}

void ft_add_lent_mask(struct ft_launch_tensors *all, const struct fatune_mask *mask) {
  if (!mask || !mask->lent) return;
  struct ft_emulated_tensor *const added = add(all, "the mask", mask->lent, 1);
  added->extents[FT_TENSOR_DIMS - 1] = (int64_t)mask->lent_bytes;
  added->strides[FT_TENSOR_DIMS - 1] = 1;
}

void ft_add_seeds(struct ft_launch_tensors *all, const struct ft_arg_dropout *dropout) {
  if (dropout->seed_address) add(all, "the seed", dropout->seed_address, sizeof(uint64_t));
  if (dropout->offset_address) add(all, "the offset", dropout->offset_address, sizeof(uint64_t));
}
