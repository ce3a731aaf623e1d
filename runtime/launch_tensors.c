/* launch_tensors.c: the memory of a run, as the emulator is to know it.
 * in -> out: struct ft_launch -> struct ft_emulated_tensor of each argument. The lists of a mask
 * are memory of the driver's and need no word. */
#include "runtime/emulator/emulator.h"
#include "runtime/session.h"

static struct ft_emulated_tensor tensor(const char *name, uint64_t address, enum ft_dtype dtype,
                                        const int64_t extents[FT_TENSOR_DIMS],
                                        const struct ft_stride *stride) {
  return (struct ft_emulated_tensor){.name = name,
                                     .address = address,
                                     .element_bytes = ft_dtype_bytes(dtype),
                                     .extents = {extents[0], extents[1], extents[2], extents[3]},
                                     .strides = {stride->batch, stride->row, stride->head, 1}};
}

static struct ft_emulated_tensor word(const char *name, uint64_t address) {
  return (struct ft_emulated_tensor){
      .name = name, .address = address, .element_bytes = 8, .extents = {1, 1, 1, 1}};
}

void ft_launch_describe(const struct ft_launch *launch) {
  const struct ft_forward_params *const p = &launch->tiled.rest;
  const int64_t heads_kv = p->heads_q / p->group;
  const int64_t d = launch->head_dim, dv = launch->head_dim_v;
  struct ft_emulated_tensor tensors[FT_TENSORS_MOST];
  int count = 0;
  tensors[count++] =
      tensor("Q", p->q, launch->dtype, (int64_t[]){p->batch, p->nq, p->heads_q, d}, &p->q_stride);
  tensors[count++] =
      tensor("K", p->k, launch->dtype, (int64_t[]){p->batch, p->nk, heads_kv, d}, &p->k_stride);
  tensors[count++] =
      tensor("V", p->v, launch->dtype, (int64_t[]){p->batch, p->nk, heads_kv, dv}, &p->v_stride);
  tensors[count] =
      tensor("O", p->o, launch->dtype, (int64_t[]){p->batch, p->nq, p->heads_q, dv}, &p->o_stride);
  tensors[count++].writable = true;
  if (p->lse)
    tensors[count++] =
        (struct ft_emulated_tensor){.name = "LSE",
                                    .address = p->lse,
                                    .element_bytes = sizeof(float),
                                    .extents = {p->batch, p->nq, p->heads_q, 1},
                                    .strides = {(int64_t)p->heads_q * p->nq, 1, p->nq, 1},
                                    .writable = true};
  if (p->seed_address) tensors[count++] = word("the seed", p->seed_address);
  if (p->offset_address) tensors[count++] = word("the offset", p->offset_address);
  ft_emulator_expect(tensors, count);
}
