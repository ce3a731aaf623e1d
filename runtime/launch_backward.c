/* launch_backward.c: the arguments of a backward run, checked and turned into what its kernels
 * read. in -> out: plan + fatune_arguments -> struct ft_backward_params, grids, places in the
 * workspace. */
#include "runtime/launch_backward.h"

#include <string.h>

#include "generator/families/mma_backward.h"
#include "generator/status.h"
#include "runtime/launch_checks.h"
#include "runtime/mask.h"
#include "generator/arguments.h"

/* ---- tensors ---- */

enum { INPUTS = 5, TENSORS = 8 };

static int check_own_memory(const struct ft_view views[TENSORS], const uint64_t addresses[TENSORS],
                            uint64_t lse) {
  for (int output = INPUTS; output < TENSORS; output++) {
    for (int other = 0; other < output; other++)
      if (addresses[output] == addresses[other])
        return ft_fail(FT_E_ARGUMENT,
                       "arguments.%s.data is that of %s; a gradient must not share memory",
                       views[output].name, views[other].name);
    if (addresses[output] == lse)
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.%s.data is arguments.lse; a gradient must not share "
                     "memory",
                     views[output].name);
  }
  return FT_OK;
}

static int read_floats(const char *name, const float *data, bool required, uint64_t *address) {
  *address = (uintptr_t)data;
  if (required && !data)
    return ft_fail(FT_E_ARGUMENT, "arguments.%s is NULL; a backward reads what the forward wrote",
                   name);
  if (*address % sizeof(float) == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "arguments.%s is %p; allowed: a multiple of 4%s", name,
                 (const void *)data, required ? "" : ", or NULL");
}

static int read_tensors(struct ft_backward_params *params, const struct ft_request *request,
                        const struct ft_run *run, const fatune_arguments *arguments) {
  const int64_t batch = run->batch, nq = run->nq, nk = run->nk;
  const int hq = run->heads_q, hkv = run->heads_kv;
  const int d = request->head_dim, dv = request->head_dim_v;
  const struct ft_view views[TENSORS] = {{"q", &arguments->q, batch, nq, hq, d, false},
                                         {"k", &arguments->k, batch, nk, hkv, d, false},
                                         {"v", &arguments->v, batch, nk, hkv, dv, false},
                                         {"o", &arguments->o, batch, nq, hq, dv, false},
                                         {"dout", &arguments->dout, batch, nq, hq, dv, false},
                                         {"dq", &arguments->dq, batch, nq, hq, d, true},
                                         {"dk", &arguments->dk, batch, nk, hkv, d, true},
                                         {"dv", &arguments->dv, batch, nk, hkv, dv, true}};
  uint64_t addresses[TENSORS];
  struct ft_stride strides[TENSORS];
  for (int n = 0; n < TENSORS; n++) FT_TRY(ft_view_read(&views[n], &addresses[n], &strides[n]));
  FT_TRY(read_floats("lse", arguments->lse, true, &params->lse));
  FT_TRY(read_floats("dlse", arguments->dlse, false, &params->dlse));
  FT_TRY(check_own_memory(views, addresses, params->lse));

  params->q.data = addresses[0], params->q.stride = strides[0];
  params->k.data = addresses[1], params->k.stride = strides[1];
  params->v.data = addresses[2], params->v.stride = strides[2];
  params->o.data = addresses[3], params->o.stride = strides[3];
  params->dout.data = addresses[4], params->dout.stride = strides[4];
  params->dq.data = addresses[5], params->dq.stride = strides[5];
  params->dk.data = addresses[6], params->dk.stride = strides[6];
  params->dv.data = addresses[7], params->dv.stride = strides[7];
  return FT_OK;
}

/* ---- tiles and grids ---- */

/* what: "heads_q", or "heads_kv". */
static int count_blocks(const struct ft_run *run, const char *what, int heads, int64_t tiles,
                        unsigned *grid) {
  int64_t blocks;
  if (!__builtin_mul_overflow(tiles, run->batch * heads, &blocks) && blocks <= INT32_MAX) {
    *grid = (unsigned)blocks;
    return FT_OK;
  }
  return ft_fail(
      FT_E_ARGUMENT,
      "arguments: batch %lld x %s %d x %lld tiles (seqlen_q %lld, seqlen_k %lld) is more "
      "than the 2^31 - 1 blocks of one launch",
      (long long)run->batch, what, heads, (long long)tiles, (long long)run->nq, (long long)run->nk);
}

static int read_geometry(struct ft_launch *launch, const struct ft_request *request,
                         const struct ft_config *config, const struct ft_arch *arch,
                         const struct ft_run *run) {
  struct ft_backward_params *const params = &launch->backward;
  const int64_t q_tiles = ft_run_tiles(run->nq, request->mask_rows, ft_config_block_m(config));
  const int64_t k_tiles = ft_run_tiles(run->nk, request->mask_cols, ft_config_block_n(config));
  FT_TRY(count_blocks(run, "heads_q", run->heads_q, q_tiles, &launch->tiles_grid));
  FT_TRY(count_blocks(run, "heads_kv", run->heads_kv, k_tiles, &launch->grid));
  params->sequence.nq = (int32_t)run->nq;
  params->sequence.nk = (int32_t)run->nk;
  params->sequence.heads_q = run->heads_q;
  params->sequence.heads_kv = run->heads_kv;
  params->sequence.group = run->heads_q / run->heads_kv;
  params->sequence.batch = (int32_t)run->batch;
  params->schedule.q_tiles = (int32_t)q_tiles;
  params->schedule.k_tiles = (int32_t)k_tiles;
  /* What a key tile walks over: Q and dO of all heads of its group. */
  const int64_t bytes = params->sequence.group * run->nq *
                        (request->head_dim + request->head_dim_v) * ft_dtype_bytes(request->dtype);
  params->schedule.l2_section_heads =
      (int32_t)ft_run_section(request, arch, bytes, 1, run->batch * run->heads_kv);
  return FT_OK;
}

/* ---- workspace ---- */

/* Offsets of its parts; a part may be empty. */
struct places {
  int64_t sum_of_tile, stats_of_tile, counters_of_tile; /* words */
  int64_t row_stats, counters, end;                     /* dq_sum is at 0 */
};

static int64_t whole(int64_t bytes) {
  enum { ALIGN = 256 };
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct places place(const struct ft_request *request, const struct ft_config *config,
                           const struct ft_arch *arch, unsigned tiles) {
  enum { STATS = 2, WORD = 4 };
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  const struct ft_mma_backward_knobs *const k = ft_mma_backward_knobs(config);
  const struct ft_mma_backward_budget *const own = ft_mma_backward_budget(&budget);
  const int counters = k->dq_mode == FT_DQ_ORDERED ? k->warps : 0; /* of each sum */
  struct places places = {.sum_of_tile = (int64_t)own->dq_sums * k->block_m * own->d_pad,
                          .stats_of_tile = (int64_t)k->block_m * STATS,
                          .counters_of_tile = (int64_t)own->dq_sums * counters};
  /* < 2^31 tiles, < 2^19 words each */
  places.row_stats = whole(tiles * places.sum_of_tile * WORD);
  places.counters = places.row_stats + whole(tiles * places.stats_of_tile * WORD);
  places.end = places.counters + whole(tiles * places.counters_of_tile * WORD);
  return places;
}

static int read_workspace(struct ft_launch *launch, const struct ft_request *request,
                          const struct ft_config *config, const struct ft_arch *arch,
                          const void *workspace) {
  struct ft_backward_params *const params = &launch->backward;
  const struct places places = place(request, config, arch, launch->tiles_grid);
  const uint64_t begin = (uintptr_t)workspace;
  if (!workspace)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.workspace is NULL; this run needs %lld bytes of device memory "
                   "(fatune_plan_workspace_for)",
                   (long long)places.end);
  if (begin % 256 != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.workspace is %p; allowed: a multiple of 256",
                   workspace);
  launch->sum_of_tile = places.sum_of_tile;
  launch->stats_of_tile = places.stats_of_tile;
  launch->counters_of_tile = places.counters_of_tile;
  params->dq_sum = places.sum_of_tile > 0 ? begin : 0;
  params->row_stats = begin + (uint64_t)places.row_stats;
  params->counters = places.counters_of_tile > 0 ? begin + (uint64_t)places.counters : 0;
  return FT_OK;
}

/* ---- mask ---- */

static int read_mask(struct ft_backward_params *params, const struct ft_request *request,
                     const struct ft_run *run, const struct fatune_mask *mask) {
  FT_TRY(ft_run_check_mask(run, request, mask));
  if (!mask) return FT_OK;
  params->visibility.columns.lists = mask->column_lists;
  params->visibility.columns.blocks = mask->column_blocks;
  params->visibility.rows.lists = mask->lists;
  params->visibility.rows.blocks = mask->blocks;
  ft_mask_strides(mask, mask->col_blocks, &params->visibility.columns.batch_lists,
                  &params->visibility.columns.head_lists);
  ft_mask_strides(mask, mask->row_blocks, &params->visibility.rows.batch_lists,
                  &params->visibility.rows.head_lists);
  return FT_OK;
}

/* ---- public ---- */

static void read_numbers(struct ft_backward_params *params, const struct ft_run *run) {
  params->visibility.first_diagonal = (int32_t)run->visibility.first_diagonal;
  params->visibility.last_diagonal = (int32_t)run->visibility.last_diagonal;
  params->softmax.scale = run->scale;
  params->softmax.scale_log2 = run->scale_log2;
  params->dropout.seed = run->seed;
  params->dropout.offset = run->offset;
  params->dropout.seed_address = run->seed_address;
  params->dropout.offset_address = run->offset_address;
  params->dropout.threshold = run->dropout_threshold;
  params->dropout.rescale = run->dropout_rescale;
}

int ft_launch_prepare_backward(struct ft_launch *launch, const struct ft_request *request,
                               const struct ft_config *config, const struct ft_arch *arch,
                               const fatune_arguments *arguments) {
  struct ft_run run;
  FT_TRY(ft_run_read(&run, request, arguments));
  FT_TRY(read_geometry(launch, request, config, arch, &run));
  FT_TRY(read_tensors(&launch->backward, request, &run, arguments));
  FT_TRY(read_workspace(launch, request, config, arch, arguments->workspace));
  read_numbers(&launch->backward, &run);
  return read_mask(&launch->backward, request, &run, arguments->mask);
}

int ft_launch_workspace(const struct ft_request *request, const struct ft_config *config,
                        const struct ft_arch *arch, const fatune_arguments *given, size_t *bytes) {
  const fatune_arguments of_request = FATUNE_ARGUMENTS_INIT;
  fatune_arguments room;
  const fatune_arguments *arguments;
  struct ft_launch launch;
  struct ft_run run;
  *bytes = 0;
  FT_TRY(ft_arguments_read(&arguments, &room, given ? given : &of_request));
  if (request->pass != FT_BACKWARD) return FT_OK;
  FT_TRY(ft_run_read(&run, request, arguments));
  FT_TRY(read_geometry(&launch, request, config, arch, &run));
  *bytes = (size_t)place(request, config, arch, launch.tiles_grid).end;
  return FT_OK;
}
