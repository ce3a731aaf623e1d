/* launch_tensors.c: the memory of a run, as the emulator is to know it.
 * in -> out: struct ft_launch -> struct ft_emulated_tensor of each argument. The lists of a mask
 * are memory of the driver's and need no word. */
#include "runtime/launch_tensors.h"

#include "generator/request.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/emulator/tensor.h"
#include "generator/arguments.h"

/* Tensors that all have some things in common. */
struct description {
  struct ft_emulated_tensor tensors[FT_TENSORS_MOST];
  int count;
  const struct ft_launch *launch;
  int64_t batch, nq, nk, heads_q, heads_kv;
};

static struct ft_emulated_tensor *add(struct description *all, const char *name, uint64_t address,
                                      int element_bytes) {
  struct ft_emulated_tensor *const tensor = &all->tensors[all->count++];
  *tensor = (struct ft_emulated_tensor){
      .name = name, .address = address, .element_bytes = element_bytes, .extents = {1, 1, 1, 1}};
  return tensor;
}

/* [batch, rows, heads, dim] */
static struct ft_emulated_tensor *add_tensor(struct description *all, const char *name,
                                             uint64_t address, const struct ft_stride *stride,
                                             bool of_queries, int dim) {
  struct ft_emulated_tensor *const tensor =
      add(all, name, address, ft_dtype_bytes(all->launch->dtype));
  const int64_t extents[] = {all->batch, of_queries ? all->nq : all->nk,
                             of_queries ? all->heads_q : all->heads_kv, dim};
  const int64_t strides[] = {stride->batch, stride->row, stride->head, 1};
  for (int n = 0; n < FT_TENSOR_DIMS; n++) {
    tensor->extents[n] = extents[n];
    tensor->strides[n] = strides[n];
  }
  return tensor;
}

/* [batch, heads, rows] */
static struct ft_emulated_tensor *add_floats(struct description *all, const char *name,
                                             uint64_t address) {
  struct ft_emulated_tensor *const tensor = add(all, name, address, sizeof(float));
  const int64_t extents[] = {all->batch, all->nq, all->heads_q, 1};
  const int64_t strides[] = {all->heads_q * all->nq, 1, all->nq, 1};
  for (int n = 0; n < FT_TENSOR_DIMS; n++) {
    tensor->extents[n] = extents[n];
    tensor->strides[n] = strides[n];
  }
  return tensor;
}

/* A dense array of the workspace: [tiles][of_tile]. */
static void add_work(struct description *all, const char *name, uint64_t address, int64_t of_tile,
                     bool writable) {
  if (!address) return;
  struct ft_emulated_tensor *const tensor = add(all, name, address, 4);
  tensor->extents[1] = all->launch->tiles_grid;
  tensor->strides[1] = of_tile;
  tensor->extents[3] = of_tile;
  tensor->strides[3] = 1;
  tensor->writable = writable;
}

static void add_seeds(struct description *all, uint64_t seed, uint64_t offset) {
  if (seed) add(all, "the seed", seed, 8);
  if (offset) add(all, "the offset", offset, 8);
}

static void describe_forward(struct description *all) {
  const struct ft_forward_params *const p = &all->launch->tiled.rest;
  const int d = all->launch->head_dim, dv = all->launch->head_dim_v;
  add_tensor(all, "Q", p->q.data, &p->q.stride, true, d)->packed_heads = 1 << p->sequence.pack_bits;
  add_tensor(all, "K", p->k.data, &p->k.stride, false, d);
  add_tensor(all, "V", p->v.data, &p->v.stride, false, dv);
  add_tensor(all, "O", p->o.data, &p->o.stride, true, dv)->writable = true;
  if (p->lse) add_floats(all, "LSE", p->lse)->writable = true;
  add_seeds(all, p->dropout.seed_address, p->dropout.offset_address);
}

/* Every step sees all tensors and may write its own results. */
static void describe_backward(struct description *all, enum ft_step step) {
  const struct ft_backward_params *const p = &all->launch->backward;
  const struct ft_launch *const launch = all->launch;
  const int d = launch->head_dim, dv = launch->head_dim_v;
  const bool prepares = step == FT_STEP_PREPARE, multiplies = step == FT_STEP_MAIN;
  add_tensor(all, "Q", p->q.data, &p->q.stride, true, d);
  add_tensor(all, "K", p->k.data, &p->k.stride, false, d);
  add_tensor(all, "V", p->v.data, &p->v.stride, false, dv);
  add_tensor(all, "O", p->o.data, &p->o.stride, true, dv);
  add_tensor(all, "dO", p->dout.data, &p->dout.stride, true, dv);
  add_tensor(all, "dQ", p->dq.data, &p->dq.stride, true, d)->writable = step == FT_STEP_CONVERT;
  add_tensor(all, "dK", p->dk.data, &p->dk.stride, false, d)->writable = multiplies;
  add_tensor(all, "dV", p->dv.data, &p->dv.stride, false, dv)->writable = multiplies;
  add_floats(all, "LSE", p->lse);
  if (p->dlse) add_floats(all, "dLSE", p->dlse);
  add_work(all, "the sums of dQ", p->dq_sum, launch->sum_of_tile, prepares || multiplies);
  add_work(all, "the statistics", p->row_stats, launch->stats_of_tile, prepares);
  add_work(all, "the counters", p->counters, launch->counters_of_tile, prepares || multiplies);
  add_seeds(all, p->dropout.seed_address, p->dropout.offset_address);
}

void ft_launch_describe(const struct ft_launch *launch, enum ft_step step) {
  const struct ft_forward_params *const f = &launch->tiled.rest;
  const struct ft_backward_params *const b = &launch->backward;
  struct description all = {.launch = launch};
  if (launch->pass == FT_BACKWARD) {
    all.batch = b->sequence.batch, all.nq = b->sequence.nq, all.nk = b->sequence.nk;
    all.heads_q = b->sequence.heads_q, all.heads_kv = b->sequence.heads_kv;
    describe_backward(&all, step);
  } else {
    all.batch = f->sequence.batch, all.nq = f->sequence.nq >> f->sequence.pack_bits,
    all.nk = f->sequence.nk;
    all.heads_q = (int64_t)f->sequence.heads_q << f->sequence.pack_bits,
    all.heads_kv = f->sequence.heads_q / f->sequence.group;
    describe_forward(&all);
  }
  ft_emulator_expect(all.tensors, all.count);
}
