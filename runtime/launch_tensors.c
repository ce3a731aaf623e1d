/* launch_tensors.c: the memory of a run, as the emulator is to know it.
 * in -> out: struct ft_launch -> struct ft_emulated_tensor of each argument. The lists of a mask
 * are memory of the driver's and need no word. */
#include "runtime/launch_tensors.h"

#include "generator/request.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/emulator/tensor.h"
#include "runtime/params.h"

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
  add_tensor(all, "Q", p->q, &p->q_stride, true, d)->packed_heads = 1 << p->pack_bits;
  add_tensor(all, "K", p->k, &p->k_stride, false, d);
  add_tensor(all, "V", p->v, &p->v_stride, false, dv);
  add_tensor(all, "O", p->o, &p->o_stride, true, dv)->writable = true;
  if (p->lse) add_floats(all, "LSE", p->lse)->writable = true;
  add_seeds(all, p->seed_address, p->offset_address);
}

/* Every step sees all tensors and may write its own results. */
static void describe_backward(struct description *all, enum ft_step step) {
  const struct ft_backward_params *const p = &all->launch->backward;
  const struct ft_launch *const launch = all->launch;
  const int d = launch->head_dim, dv = launch->head_dim_v;
  const bool prepares = step == FT_STEP_PREPARE, multiplies = step == FT_STEP_MAIN;
  add_tensor(all, "Q", p->q, &p->q_stride, true, d);
  add_tensor(all, "K", p->k, &p->k_stride, false, d);
  add_tensor(all, "V", p->v, &p->v_stride, false, dv);
  add_tensor(all, "O", p->o, &p->o_stride, true, dv);
  add_tensor(all, "dO", p->dout, &p->dout_stride, true, dv);
  add_tensor(all, "dQ", p->dq, &p->dq_stride, true, d)->writable = step == FT_STEP_CONVERT;
  add_tensor(all, "dK", p->dk, &p->dk_stride, false, d)->writable = multiplies;
  add_tensor(all, "dV", p->dv, &p->dv_stride, false, dv)->writable = multiplies;
  add_floats(all, "LSE", p->lse);
  if (p->dlse) add_floats(all, "dLSE", p->dlse);
  add_work(all, "the sums of dQ", p->dq_sum, launch->sum_of_tile, prepares || multiplies);
  add_work(all, "the statistics", p->row_stats, launch->stats_of_tile, prepares);
  add_work(all, "the counters", p->counters, launch->counters_of_tile, prepares || multiplies);
  add_seeds(all, p->seed_address, p->offset_address);
}

void ft_launch_describe(const struct ft_launch *launch, enum ft_step step) {
  const struct ft_forward_params *const f = &launch->tiled.rest;
  const struct ft_backward_params *const b = &launch->backward;
  struct description all = {.launch = launch};
  if (launch->pass == FT_BACKWARD) {
    all.batch = b->batch, all.nq = b->nq, all.nk = b->nk;
    all.heads_q = b->heads_q, all.heads_kv = b->heads_kv;
    describe_backward(&all, step);
  } else {
    all.batch = f->batch, all.nq = f->nq >> f->pack_bits, all.nk = f->nk;
    all.heads_q = (int64_t)f->heads_q << f->pack_bits, all.heads_kv = f->heads_q / f->group;
    describe_forward(&all);
  }
  ft_emulator_expect(all.tensors, all.count);
}
