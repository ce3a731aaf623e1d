/* tiled_backward.c: the launch of a backward with tensor maps.
 * in -> out: plan + fatune_arguments -> struct ft_tiled_backward_params, three kernels, tensor
 * maps. */
#include "runtime/families/tiled_backward.h"

#include "generator/status.h"
#include "runtime/families/column_order.h"
#include "runtime/families/ragged.h"
#include "runtime/launch_score.h"
#include "runtime/tensor_maps.h"

static_assert(offsetof(struct ft_tiled_backward_params, rest) == 0, "the first member");

struct ft_backward_work ft_tiled_backward_work(const struct ft_launch_plan *plan, int sums,
                                               int d_pad, int adders, int prepare_threads) {
  enum { STATISTICS = 2 };
  const int rows = ft_config_block_m(plan->config);
  const int counters = plan->request->deterministic ? adders : 0;
  return (struct ft_backward_work){.dq_sum = (int64_t)sums * rows * d_pad,
                                   .row_stats = (int64_t)rows * STATISTICS,
                                   .counters = (int64_t)sums * counters,
                                   .sink_sums =
                                       ft_backward_sink_sums(plan->request, prepare_threads),
                                   .blocks = 1};
}

/* Blocks of the last kernel that add up dV or dK of the parts of 16 keys. */
static unsigned adding_blocks(const struct ft_backward_params *params, int block_n) {
  enum { KEYS = 16, SUMS = 2 };
  const int64_t heads = (int64_t)params->sequence.batch * params->sequence.heads_kv;
  return (unsigned)(heads * ft_divided_tiles(&params->column_order) * (block_n / KEYS) * SUMS);
}

static int check_blocks(int64_t k_tiles, int blocks) {
  if (k_tiles <= INT32_MAX / blocks) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments: %lld tiles of keys, of all heads, in clusters of %d blocks are more "
                 "than the 2^31 - 1 blocks of one launch",
                 (long long)k_tiles, blocks);
}

/* Blocks that take tiles are as many as the GPU has at a time. */
static unsigned main_grid(const struct ft_launch_plan *plan, const struct ft_backward_work *work,
                          int64_t k_tiles) {
  const int64_t slots = (int64_t)plan->arch->sm_count * plan->budget->ctas_per_sm;
  if (work->takes_tiles && k_tiles > slots) return (unsigned)slots;
  return (unsigned)k_tiles * (unsigned)work->blocks;
}

int ft_tiled_backward_prepare(struct ft_launch *launch, const struct ft_tiled_backward *tiled,
                              const fatune_arguments *arguments) {
  const struct ft_launch_plan *const plan = launch->plan;
  int64_t q_tiles, k_tiles;
  struct ft_tiled_backward_params *const params = &launch->argument.tiled_backward;
  FT_TRY(ft_backward_prepare(&params->rest, &params->score, plan, &tiled->work, arguments, &q_tiles,
                             &k_tiles));
  FT_TRY(check_blocks(k_tiles, tiled->work.blocks));
  launch->kernels[FT_BACKWARD_LIST] = ft_ragged_list(&params->rest.ragged);
  launch->kernels[FT_BACKWARD_PREPARE] =
      (struct ft_launch_kernel){.grid = (unsigned)q_tiles, .threads = tiled->prepare_threads};
  launch->kernels[FT_BACKWARD_MAIN] =
      (struct ft_launch_kernel){.grid = main_grid(plan, &tiled->work, k_tiles),
                                .threads = plan->budget->threads,
                                .smem_bytes = plan->budget->smem_bytes,
                                .early = true};
  const unsigned adding = adding_blocks(&params->rest, ft_config_block_n(plan->config));
  launch->kernels[FT_BACKWARD_CONVERT] =
      (struct ft_launch_kernel){.grid = (unsigned)q_tiles + adding,
                                .threads = tiled->dq_threads,
                                .smem_bytes = tiled->dq_smem,
                                .early = true};
  return FT_OK;
}

void ft_tiled_backward_describe(const struct ft_launch *launch, const struct ft_backward_work *work,
                                int kernel, struct ft_launch_tensors *tensors) {
  const struct ft_tiled_backward_params *const params = &launch->argument.tiled_backward;
  ft_backward_describe(&params->rest, launch->plan->request, work,
                       launch->kernels[FT_BACKWARD_PREPARE].grid, (enum ft_backward_kernel)kernel,
                       tensors);
  ft_add_captured(tensors, &params->score, launch->plan->score);
  ft_add_gradients(tensors, &params->score, launch->plan, kernel == FT_BACKWARD_CONVERT);
}

int ft_tiled_backward_map(struct ft_launch *launch, int keys_k, int keys_v,
                          const struct ft_driver *driver) {
  enum { WARPGROUP_KEYS = 64 };
  struct ft_tiled_backward_params *const tiled = &launch->argument.tiled_backward;
  const struct ft_backward_params *const p = &tiled->rest;
  const struct ft_arg_sequence *const sequence = &p->sequence;
  const struct ft_request *const request = launch->plan->request;
  const int nq = sequence->nq, nk = sequence->nk, batch = sequence->batch;
  const int heads_q = sequence->heads_q, heads_kv = sequence->heads_kv;
  const int queries = ft_config_block_m(launch->plan->config);
  const int d = request->head_dim, dv = request->head_dim_v;
  const enum ft_dtype dtype = request->dtype;
  const bool ragged = request->ragged;
  const struct ft_mapped tensors[] = {
      {"q", &tiled->q, &p->q, d, nq, heads_q, batch, queries, ragged, 0, 1, dtype, false},
      {"k", &tiled->k, &p->k, d, nk, heads_kv, batch, keys_k, ragged, 0, 1, dtype, false},
      {"v", &tiled->v, &p->v, dv, nk, heads_kv, batch, keys_v, ragged, 0, 1, dtype, false},
      {"dout", &tiled->dout, &p->dout, dv, nq, heads_q, batch, queries, ragged, 0, 1, dtype, false},
      {"dk", &tiled->dk, &p->dk, d, nk, heads_kv, batch, WARPGROUP_KEYS, ragged, 0, 1, dtype,
       false},
      {"dv", &tiled->dv, &p->dv, dv, nk, heads_kv, batch, WARPGROUP_KEYS, ragged, 0, 1, dtype,
       false}};
  const int stored = ft_outputs_are_wide(request) ? 2 : 0; /* dK and dV, from registers */
  return ft_map_tensors(tensors, FT_COUNT(tensors) - stored, launch->plan->maps, driver);
}
