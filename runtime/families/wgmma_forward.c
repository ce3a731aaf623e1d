/* wgmma_forward.c: the launch of the forward by wgmma and TMA.
 * in -> out: plan + fatune_arguments -> struct ft_tiled_forward_params, persistent blocks, tensor
 * maps. */
#include "runtime/families/wgmma_forward.h"

#include "generator/emit.h"
#include "generator/families/wgmma_forward.h"
#include "generator/schedule.h"
#include "generator/status.h"
#include "runtime/families/forward.h"
#include "runtime/families/pages.h"
#include "runtime/families/ragged.h"
#include "runtime/launch_score.h"
#include "runtime/mask.h"
#include "runtime/tensor_maps.h"

/* ---- the tile scheduler ---- */

/* Those that persistent blocks take; the others are left to kernels beside this one. */
static int64_t multiprocessors_of(const struct ft_launch_plan *plan,
                                  const fatune_arguments *arguments) {
  enum { LEAST = 2 }; /* for a cluster of two blocks */
  const int64_t all = plan->arch->sm_count, taken = all - arguments->spare_multiprocessors;
  return taken >= LEAST || taken == all ? taken : all < LEAST ? all : LEAST;
}

/* What the scheduler deals out as one: a batch_head, or two that share K and V, which the blocks of
 * a cluster take together. */
static bool deals_pairs(const struct ft_launch_plan *plan) {
  return ft_wgmma_forward_knobs(plan->config)->multicast == 2;
}

static int64_t dealt_group(const struct ft_launch_plan *plan,
                           const struct ft_forward_params *params) {
  const int64_t group = params->sequence.group;
  return deals_pairs(plan) ? (group + 1) / 2 : group;
}

static int64_t dealt_heads(const struct ft_launch_plan *plan,
                           const struct ft_forward_params *params) {
  return (int64_t)params->sequence.batch * params->sequence.heads_q / params->sequence.group *
         dealt_group(plan, params);
}

/* How many batch_heads are the remainder that evens the shares out. Of the numbers whose keys and
 * values fill a quarter to three quarters of L2 it is the one with the most even shares. Under a
 * mask a tile is as long as its row of the mask has blocks. */
static int64_t remainder_heads(const struct ft_forward_params *params,
                               const struct ft_launch_plan *plan, const struct ft_run *run,
                               int64_t resident) {
  const struct ft_request *const request = plan->request;
  const int64_t heads = dealt_heads(plan, params);
  const int64_t group = dealt_group(plan, params), kv_bytes = ft_forward_kv_bytes(request, run);
  if (request->mask_rows > 0)
    return ft_schedule_section(request, plan->arch, kv_bytes, group, heads);
  const struct ft_shares shares = {
      .tiles = params->schedule.q_tiles,
      .heads = heads,
      .blocks = deals_pairs(plan) ? resident / 2 : resident,
      .rows = ft_config_block_m(plan->config),
      .keys = ft_config_block_n(plan->config),
      .visibility = run->visibility,
      .pack_bits = ft_pack_of_code(params->sequence.pack_code).bits,
      .least = ft_schedule_section(request, plan->arch, 2 * kv_bytes, group, heads),
      .most = ft_schedule_section(request, plan->arch, kv_bytes - kv_bytes / 3, group, heads),
  };
  return ft_shares_remainder(&shares);
}

enum { LIST, TURN, NORMS, MAIN, MERGE, KERNELS };

/* With e4m3 the factors of Q, K and V stand before it. */
static const struct ft_tiled_forward_params *tiled_in(const struct ft_launch *launch) {
  return launch->plan->request->dtype == FT_E4M3 ? &launch->argument.descaled_forward.rest
                                                 : &launch->argument.tiled_forward;
}

static struct ft_tiled_forward_params *tiled_of(struct ft_launch *launch) {
  return (struct ft_tiled_forward_params *)tiled_in(launch);
}

/* Whether walks are divided into parts whose number is chosen at the launch. */
static bool splits(const struct ft_launch_plan *plan) {
  const enum ft_schedule schedule = ft_schedule_of(plan->request, plan->config);
  return schedule == FT_SCHEDULE_SPLIT || schedule == FT_SCHEDULE_LONGEST ||
         schedule == FT_SCHEDULE_STREAM;
}

static struct ft_walks walks_of(const struct ft_launch_plan *plan) {
  struct ft_walks walks = {0};
  ft_wgmma_forward_walks(&walks, plan->request, plan->config, plan->budget);
  return walks;
}

/* How many persistent blocks take the work tiles, or their parts. Where blocks have equal shares of
 * all steps there is one for each share, whatever `resident` is. */
static int64_t blocks_of(struct ft_launch *launch, int64_t units, int64_t resident) {
  const struct ft_launch_plan *const plan = launch->plan;
  const struct ft_forward_params *const params = &tiled_of(launch)->rest;
  if (ft_schedule_of(plan->request, plan->config) == FT_SCHEDULE_STREAM)
    resident = plan->arch->sm_count;
  if (splits(plan) || plan->request->ragged) return units < resident ? units : resident;
  const int64_t cluster = ft_wgmma_forward_cluster(plan->config);
  const int64_t together = deals_pairs(plan) ? cluster : 1; /* blocks that take what is dealt out */
  return together * ft_schedule_blocks(ft_schedule_of(plan->request, plan->config),
                                       params->schedule.q_tiles, dealt_heads(plan, params),
                                       params->schedule.remainder_heads, cluster / together,
                                       resident / together);
}

/* ---- V by columns ---- */

static bool turns_values(const struct ft_launch_plan *plan) {
  return ft_wgmma_forward_knobs(plan->config)->v_by_columns;
}

/* Tiles of V of all heads: the keys of a step each. */
static int64_t value_tiles(const struct ft_launch_plan *plan, const struct ft_run *run) {
  const int block_n = ft_config_block_n(plan->config);
  return run->batch * run->heads_kv * ((run->nk + block_n - 1) / block_n);
}

static int64_t tile_bytes(const struct ft_launch_plan *plan) {
  return (int64_t)plan->request->head_dim_v * ft_config_block_n(plan->config);
}

/* They lie in the workspace, where others have parts of walks. */
static int prepare_values(struct ft_launch *launch, const struct ft_run *run,
                          const fatune_arguments *arguments) {
  enum { ALIGNMENT = 256, THREADS = 128 }; /* TURNING_WARPS */
  const struct ft_launch_plan *const plan = launch->plan;
  const int64_t tiles = value_tiles(plan, run);
  const uint64_t workspace = (uintptr_t)arguments->workspace;
  if (workspace == 0 || workspace % ALIGNMENT != 0)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments.workspace is %p; allowed: a multiple of 256, as the plan's config has "
        "v_by_columns=1: %lld bytes (fatune_plan_workspace_size)",
        arguments->workspace, (long long)(tiles * tile_bytes(plan)));
  if (tiles >= INT32_MAX)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments: %lld tiles of V are more than the 2^31 - 1 blocks of one launch",
                   (long long)tiles);
  tiled_of(launch)->rest.parts.o = workspace;
  launch->kernels[TURN] =
      (struct ft_launch_kernel){.grid = (unsigned)tiles,
                                .threads = THREADS,
                                .smem_bytes = ft_wgmma_forward_budget(plan->budget)->turning_bytes};
  return FT_OK;
}

/* ---- the largest norms of Q and K ---- */

static bool skips_far(const struct ft_launch_plan *plan) {
  return ft_wgmma_forward_knobs(plan->config)->skip_far && plan->score != NULL &&
         ft_score_fades(plan->score);
}

/* Parts of the rows of all heads of Q and K. */
static int64_t norms(const struct ft_run *run) {
  return FT_NORM_PARTS * run->batch * (run->heads_q + run->heads_kv);
}

/* They lie in the workspace. Without one no keys are left out. */
static int prepare_norms(struct ft_launch *launch, const struct ft_run *run,
                         const fatune_arguments *arguments) {
  enum { ALIGNMENT = 256, WARP = 32 };
  const uint64_t workspace = (uintptr_t)arguments->workspace;
  if (workspace % ALIGNMENT != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.workspace is %p; allowed: NULL, or a multiple of 256",
                   arguments->workspace);
  const bool counts = norms(run) < INT32_MAX;
  tiled_of(launch)->rest.parts.o = counts ? workspace : 0;
  if (workspace != 0 && counts)
    launch->kernels[NORMS] =
        (struct ft_launch_kernel){.grid = (unsigned)norms(run),
                                  .threads = FT_NORM_WARPS * WARP,
                                  .smem_bytes = FT_NORM_WARPS * (int)sizeof(float)};
  return FT_OK;
}

static int prepare(struct ft_launch *launch, const fatune_arguments *arguments) {
  const struct ft_launch_plan *const plan = launch->plan;
  struct ft_forward_params *const params = &tiled_of(launch)->rest;
  struct ft_run run;
  int64_t tiles;
  FT_TRY(ft_run_read(&run, plan->request, arguments));
  FT_TRY(ft_forward_prepare(params, plan, &run, arguments, ft_forward_pack(plan, &run, arguments),
                            &tiles));
  if (plan->request->dtype == FT_E4M3)
    FT_TRY(ft_run_read_descales(&launch->argument.descaled_forward.descales, arguments));
  const int64_t resident = multiprocessors_of(plan, arguments);
  int64_t units = tiles;
  launch->kernels[LIST] = ft_ragged_list(&params->ragged);
  launch->kernels[TURN] = launch->kernels[NORMS] = (struct ft_launch_kernel){0};
  launch->kernels[MERGE] = (struct ft_launch_kernel){0};
  if (turns_values(plan)) FT_TRY(prepare_values(launch, &run, arguments));
  if (skips_far(plan)) FT_TRY(prepare_norms(launch, &run, arguments));
  if (splits(plan)) {
    struct ft_walks walks = walks_of(plan);
    FT_TRY(ft_forward_divide(params, plan, &run, arguments, &walks, &units));
    launch->kernels[MERGE] = ft_forward_merge(params, plan, tiles);
  }
  if (ft_schedule_of(plan->request, plan->config) == FT_SCHEDULE_BALANCED)
    params->schedule.remainder_heads = (int32_t)remainder_heads(params, plan, &run, resident);
  int64_t blocks = units;
  FT_TRY(ft_forward_clusters(plan, ft_wgmma_forward_knobs(plan->config)->split_keys, &blocks));
  if (ft_schedule_of(plan->request, plan->config) != FT_SCHEDULE_CLUSTER)
    blocks = blocks_of(launch, units, resident);
  launch->kernels[MAIN] = (struct ft_launch_kernel){.grid = (unsigned)blocks,
                                                    .threads = plan->budget->threads,
                                                    .smem_bytes = plan->budget->smem_bytes,
                                                    .early = launch->kernels[TURN].grid > 0 ||
                                                             launch->kernels[NORMS].grid > 0};
  return FT_OK;
}

static int workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                     size_t *bytes) {
  if (turns_values(plan)) {
    struct ft_run run;
    FT_TRY(ft_run_read_lengths(&run, plan->request, arguments));
    *bytes = (size_t)(value_tiles(plan, &run) * tile_bytes(plan));
    return FT_OK;
  }
  if (skips_far(plan)) {
    struct ft_run run;
    FT_TRY(ft_run_read_lengths(&run, plan->request, arguments));
    *bytes = (size_t)norms(&run) * sizeof(float);
    return FT_OK;
  }
  if (!splits(plan)) return ft_forward_list_bytes(plan, arguments, bytes);
  struct ft_walks walks = walks_of(plan);
  return ft_forward_workspace(plan, arguments, &walks, bytes);
}

/* ---- tensor maps ---- */

/* The pools of K and V as sequences, packed: pages and heads are one dimension. There is a box for
 * each page, or for a part of one. is_read_once: one work tile has all queries of a head, so K and
 * V are read once. */
static int map_pages(struct ft_mapped *k_and_v, struct ft_arg_tensor *slotted,
                     struct ft_arg_pages *pages, int page, bool is_read_once) {
  struct ft_arg_slots *const slots[] = {&pages->k, &pages->v};
  for (int n = 0; n < 2; n++) {
    struct ft_mapped *const pool = &k_and_v[n];
    slotted[n] = *pool->tensor;
    FT_TRY(ft_pages_slots(&slotted[n].stride.head, &pool->heads, slots[n], pool->name, pool->tensor,
                          pages->count));
    pool->tensor = &slotted[n];
    pool->rows = page;
    pool->ragged = true;
    pool->heads_apart = is_read_once;
    if (pool->box_rows > page) pool->box_rows = page;
  }
  return FT_OK;
}

/* Whether there are rows that a score reads and TMA can take. */
static bool reads_rows(struct ft_score_tile *tile, struct ft_launch *launch) {
  const struct ft_known_score *const score = launch->plan->score;
  return ft_wgmma_forward_knobs(launch->plan->config)->score_in_smem == 2 && score != NULL &&
         score->exponent.tile_has_rows &&
         ft_score_tile_of(tile, &tiled_of(launch)->rest.score, score);
}

/* V by columns: rows of the keys of a step, tiles as heads. */
static void map_values(struct ft_mapped *v, struct ft_arg_tensor *columns,
                       const struct ft_launch *launch) {
  const int keys = ft_config_block_n(launch->plan->config);
  const int64_t tile = tile_bytes(launch->plan);
  *columns = (struct ft_arg_tensor){
      .data = launch->argument.descaled_forward.rest.rest.parts.o,
      .stride = {.batch = tile * launch->kernels[TURN].grid, .row = keys, .head = tile}};
  *v = (struct ft_mapped){.name = "workspace",
                          .map = v->map,
                          .tensor = columns,
                          .columns = keys,
                          .rows = v->columns,
                          .heads = (int)launch->kernels[TURN].grid,
                          .batch = 1,
                          .box_rows = v->columns,
                          .of_query = 1,
                          .dtype = v->dtype};
}

static int map_tensors(struct ft_launch *launch, const struct ft_driver *driver) {
  enum { WARPGROUP_ROWS = 64, WARP_ROWS = 16 };
  struct ft_tiled_forward_params *const tiled = tiled_of(launch);
  const struct ft_forward_params *const p = &tiled->rest;
  const struct ft_arg_sequence *const sequence = &p->sequence;
  const struct ft_request *const request = launch->plan->request;
  const struct ft_wgmma_forward_knobs *const knobs = ft_wgmma_forward_knobs(launch->plan->config);
  const struct ft_pack pack = ft_pack_of_code(sequence->pack_code);
  const int nq = sequence->nq >> pack.bits, nk = sequence->nk, batch = sequence->batch;
  const int heads_q = sequence->heads_q * pack.heads, heads_kv = sequence->heads_kv;
  const bool ragged = request->ragged;
  const int page = request->pages;
  const int packed = knobs->pack_gqa ? pack.heads : 0, of_query = 1 << pack.bits;
  const bool cut = ragged && packed == 0; /* rows of Q and O, where their sequence ends */
  const int of_rows = ragged ? 1 : batch;
  const int q_rows = knobs->block_m,
            k_rows = knobs->block_n / ft_wgmma_forward_cluster(launch->plan->config);
  const int d = request->head_dim, dv = request->head_dim_v;
  const enum ft_dtype dtype = request->dtype, of_o = ft_output_dtype(request);
  struct ft_mapped tensors[] = {
      {"q", &tiled->q, &p->q, d, nq, heads_q, of_rows, q_rows, cut, packed, of_query, dtype, false},
      {"k", &tiled->k, &p->k, d, nk, heads_kv, batch, k_rows, ragged, 0, 1, dtype, false},
      {"v", &tiled->v, &p->v, dv, nk, heads_kv, batch, k_rows, ragged, 0, 1, dtype, false},
      {"o", &tiled->o, &p->o, dv, nq, heads_q, of_rows, WARPGROUP_ROWS, cut, packed, of_query, of_o,
       false},
      {.name = "captured"}};
  struct ft_arg_tensor slotted[2], columns;
  if (turns_values(launch->plan)) map_values(&tensors[2], &columns, launch);
  if (page > 0)
    FT_TRY(map_pages(&tensors[1], slotted, &tiled->rest.pages, page, sequence->nq <= q_rows));
  int count = FT_COUNT(tensors) - 1 - ft_outputs_are_wide(request); /* stored from registers */
  struct ft_score_tile tile;
  tiled->of_score = (struct ft_tensor_map){0};
  if (reads_rows(&tile, launch))
    tensors[count++] =
        (struct ft_mapped){"captured", &tiled->of_score, &tile.tensor, tile.columns, tile.rows,
                           tile.heads, tile.batch,       WARP_ROWS,    false,        0,
                           1,          tile.dtype,       false};
  return ft_map_tensors(tensors, count, launch->plan->maps, driver);
}

static void describe_values(const struct ft_launch *launch, int kernel,
                            struct ft_launch_tensors *tensors) {
  const uint64_t address = launch->argument.descaled_forward.rest.rest.parts.o;
  struct ft_emulated_tensor *const columns =
      ft_add_work(tensors, "V by columns", address, launch->kernels[TURN].grid, 0);
  const int64_t keys = ft_config_block_n(launch->plan->config);
  columns->element_bytes = 1;
  columns->extents[1] = launch->plan->request->head_dim_v;
  columns->extents[2] = launch->kernels[TURN].grid;
  columns->extents[3] = columns->strides[1] = keys;
  columns->strides[2] = keys * columns->extents[1];
  columns->writable = kernel == TURN;
}

static void describe_norms(const struct ft_launch *launch, int kernel,
                           struct ft_launch_tensors *tensors) {
  const uint64_t address = launch->argument.tiled_forward.rest.parts.o;
  if (address == 0) return;
  ft_add_work(tensors, "norms", address, launch->kernels[NORMS].grid, 1)->writable =
      kernel == NORMS;
}

static void describe(const struct ft_launch *launch, int kernel,
                     struct ft_launch_tensors *tensors) {
  const bool descaled = launch->plan->request->dtype == FT_E4M3;
  const struct ft_forward_params *const params = &tiled_in(launch)->rest;
  ft_forward_describe(params, launch->plan, kernel == LIST, false, tensors);
  if (descaled)
    ft_forward_describe_descales(&launch->argument.descaled_forward.descales,
                                 params->sequence.batch, launch->plan->request->descale_rows,
                                 tensors);
  if (turns_values(launch->plan)) describe_values(launch, kernel, tensors);
  if (skips_far(launch->plan)) describe_norms(launch, kernel, tensors);
  if (splits(launch->plan))
    ft_forward_describe_parts(params, launch->plan->request->head_dim_v, kernel == MAIN, tensors);
}

const struct ft_launch_family ft_wgmma_forward_launch = {.family = &ft_wgmma_forward_family,
                                                         .entries = {[LIST] = FT_ENTRY_WORK_LIST,
                                                                     [TURN] = FT_ENTRY_TURN,
                                                                     [NORMS] = FT_ENTRY_PREPARE,
                                                                     [MAIN] = FT_ENTRY,
                                                                     [MERGE] = FT_ENTRY_MERGE},
                                                         .kernel_count = KERNELS,
                                                         .optional = 1u << LIST | 1u << TURN |
                                                                     1u << NORMS | 1u << MERGE,
                                                         .main = MAIN,
                                                         .prepare = prepare,
                                                         .map_tensors = map_tensors,
                                                         .workspace = workspace,
                                                         .describe = describe};
