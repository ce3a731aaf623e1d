/* forward.c: what the launches of all forward families have in common.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params; those -> the memory of a run. */
#include "runtime/families/forward.h"

#include <string.h>

#include "generator/families/packed_heads.h"
#include "generator/key_parts.h"
#include "generator/schedule.h"
#include "generator/status.h"
#include "generator/stream.h"
#include "runtime/families/pages.h"
#include "runtime/families/ragged.h"
#include "runtime/launch_score.h"
#include "runtime/mask.h"

static int read_tensors(struct ft_forward_params *params, const struct ft_request *request,
                        const struct ft_run *run, const fatune_arguments *arguments) {
  const int64_t batch = run->tensor_batch, nq = run->nq, nk = run->nk;
  const int hq = run->heads_q, hkv = run->heads_kv;
  const int d = request->head_dim, dv = request->head_dim_v;
  const int bytes = ft_dtype_bytes(request->dtype), of_kv = ft_dtype_bytes(ft_kv_dtype(request));
  const int of_o = ft_dtype_bytes(ft_output_dtype(request));
  const struct ft_view q = {"q", &arguments->q, batch, nq, hq, d, false, bytes};
  const int64_t k_batch = run->page > 0 ? params->pages.count : batch; /* of pages, or of rows */
  const int64_t k_rows = run->page > 0 ? run->page : nk;
  const struct ft_view k = {"k", &arguments->k, k_batch, k_rows, hkv, d, false, of_kv};
  const struct ft_view v = {"v", &arguments->v, k_batch, k_rows, hkv, dv, false, of_kv};
  const struct ft_view o = {"o", &arguments->o, batch, nq, hq, dv, true, of_o};
  FT_TRY(ft_view_read(&q, &params->q));
  FT_TRY(ft_view_read(&k, &params->k));
  FT_TRY(ft_view_read(&v, &params->v));
  FT_TRY(ft_view_read(&o, &params->o));
  if (ft_outputs_are_wide(request)) ft_tensor_count_in_halves(&params->o, of_o);
  const uint64_t written = params->o.data;
  if (written == params->q.data || written == params->k.data || written == params->v.data)
    return ft_fail(FT_E_ARGUMENT, "arguments.o.data is that of an input; o must not share memory");

  params->lse = (uintptr_t)arguments->lse;
  if (params->lse && request->fast_exp)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.lse is %p; allowed: NULL (with fast_exp there is O alone)",
                   (const void *)arguments->lse);
  if (params->lse % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is %p; allowed: a multiple of 4, or NULL",
                   (const void *)arguments->lse);
  if (params->lse == written)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is arguments.o.data; they must not share memory");
  return FT_OK;
}

int64_t ft_forward_kv_bytes(const struct ft_request *request, const struct ft_run *run) {
  return run->nk * (request->head_dim + request->head_dim_v) * ft_dtype_bytes(ft_kv_dtype(request));
}

/* How many batch_heads run together. In a section of a ragged run the longest tiles come first, and
 * each persistent block takes one tile a round. EVEN heads have so many rounds that all blocks get
 * about the same work, and are few enough for L2 to keep what they load. */
static int64_t section_heads(const struct ft_launch_plan *plan, const struct ft_run *run,
                             int packed, int group, int64_t heads) {
  enum { EVEN = 8 };
  const enum ft_schedule schedule = ft_schedule_of(plan->request, plan->config);
  const bool longest_first = schedule == FT_SCHEDULE_LPT || schedule == FT_SCHEDULE_LONGEST;
  const bool listed = schedule == FT_SCHEDULE_RAGGED || schedule == FT_SCHEDULE_STREAM;
  if (!longest_first && !(listed && run->ragged)) return 0;
  const int64_t section = ft_schedule_section(
      plan->request, plan->arch, ft_forward_kv_bytes(plan->request, run), group, heads);
  if (longest_first) return section;
  const int64_t even = packed < EVEN ? EVEN / packed : 1;
  return ft_schedule_even_section(section > even ? section : even, heads);
}

static int read_geometry(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                         const struct ft_run *run, struct ft_pack pack, int64_t *blocks) {
  const struct ft_request *const request = plan->request;
  const int block_m = ft_config_block_m(plan->config);
  const int64_t mask_rows = (int64_t)request->mask_rows << pack.bits;
  const int64_t q_tiles = run->ragged ? ft_ragged_numbers(run, run->nq << pack.bits, block_m)
                                      : ft_schedule_tiles(run->nq << pack.bits, mask_rows, block_m);
  const int64_t batch_heads = run->tensor_batch * (run->heads_q / pack.heads); /* < 2^62 */
  if (__builtin_mul_overflow(q_tiles, batch_heads, blocks) || *blocks > INT32_MAX)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments: batch %lld x heads_q %d x %lld tiles of %d rows (seqlen_q %lld) is more "
        "than the 2^31 - 1 blocks of one launch",
        (long long)run->batch, run->heads_q, (long long)q_tiles, block_m, (long long)run->nq);
  const int group = run->heads_q / run->heads_kv / pack.heads;
  params->sequence = (struct ft_arg_sequence){.nq = (int32_t)(run->nq << pack.bits),
                                              .nk = (int32_t)run->nk,
                                              .heads_q = run->heads_q / pack.heads,
                                              .group = group,
                                              .heads_kv = run->heads_kv,
                                              .pack_code = ft_pack_code(pack),
                                              .batch = (int32_t)run->batch};
  params->schedule.q_tiles = (int32_t)q_tiles;
  params->schedule.l2_section_heads =
      (int32_t)section_heads(plan, run, pack.heads, group, batch_heads);
  return FT_OK;
}

int ft_forward_prepare(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                       const struct ft_run *run, const fatune_arguments *arguments,
                       struct ft_pack pack, int64_t *blocks) {
  memset(params, 0, sizeof *params);
  FT_TRY(read_geometry(params, plan, run, pack, blocks));
  FT_TRY(ft_ragged_read(&params->ragged, run, params->schedule.q_tiles,
                        (uintptr_t)arguments->workspace, arguments));
  FT_TRY(ft_pages_read(&params->pages, run, arguments));
  FT_TRY(read_tensors(params, plan->request, run, arguments));
  params->softmax = run->softmax;
  params->dropout = run->dropout;
  FT_TRY(ft_run_read_sinks("sinks", arguments->sinks, plan->request->sinks, &params->sinks));
  if (ft_kv_dtype(plan->request) != FT_E4M3) FT_TRY(ft_run_read_no_descales(arguments));
  FT_TRY(ft_run_read_sinks("dsinks", arguments->dsinks, false, &(uint64_t){0}));
  FT_TRY(ft_score_arguments_read(&params->score, &params->softmax, plan, run, arguments, 0));
  return ft_run_read_visibility(run, plan->request, arguments->mask, &params->visibility);
}

/* ---- key parts ---- */

/* Bytes of the partial LSE and then O of so many rows. */
static int64_t bytes_of_parts(int64_t rows, int head_dim_v) {
  enum { WORD = 4, ALIGNMENT = 256 };
  return (rows * (1 + head_dim_v) * WORD + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool has_shares(const struct ft_launch_plan *plan) {
  return ft_schedule_of(plan->request, plan->config) == FT_SCHEDULE_STREAM;
}

static int64_t resident_blocks(const struct ft_walks *walks, const struct ft_arch *arch) {
  return (int64_t)arch->sm_count * walks->blocks_per_sm;
}

/* Blocks among which the steps of all walks are divided: as many as are resident, or as there can
 * be steps. */
static int64_t sharing_blocks(const struct ft_walks *walks, const struct ft_arch *arch) {
  const int64_t resident = resident_blocks(walks, arch);
  int64_t steps;
  if (__builtin_mul_overflow(walks->tiles, walks->steps > 0 ? walks->steps : 1, &steps))
    return resident;
  return steps < resident ? steps : resident;
}

/* Lays out the partial results of `most` parts, of `rows` rows each, in the workspace. */
static void place_parts(struct ft_arg_key_parts *parts, uint64_t workspace, int64_t most,
                        int64_t rows) {
  enum { ALIGNMENT = 256 };
  const uint64_t of_lse = (uint64_t)(rows * most) * sizeof(float);
  parts->most = (int32_t)most;
  parts->rows = rows;
  parts->lse = workspace;
  parts->o = workspace + (of_lse + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Rows of a tile that a part has room for. */
static int64_t room_of_part(const struct ft_forward_params *params, int block_m) {
  return params->sequence.nq < block_m ? params->sequence.nq : block_m;
}

/* Steps of a walk over all keys that the page table has room for. */
static int64_t steps_of_table(const struct ft_forward_params *params, const struct ft_run *run,
                              const struct ft_walks *walks) {
  const int64_t keys = (int64_t)params->pages.columns * run->page;
  return (keys + walks->block_n - 1) / walks->block_n;
}

/* Each block has an equal share of the steps. Besides whole walks a block may have
 * FT_STREAM_PARTS_OF_BLOCK parts, and has room for the rows of a tile for each. */
static int divide_by_shares(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                            const struct ft_run *run, const struct ft_walks *walks,
                            uint64_t workspace, int64_t *units) {
  const int64_t rows = room_of_part(params, walks->block_m);
  int64_t steps;
  if (__builtin_mul_overflow(walks->tiles, walks->steps, &steps) || steps > INT32_MAX)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments: %lld work tiles of up to %lld steps of %d keys; allowed: at most "
                   "2^31 - 1 steps in all where K and V are in pages",
                   (long long)walks->tiles, (long long)walks->steps, walks->block_n);
  *units = sharing_blocks(walks, plan->arch);
  if (plan->request->ragged) workspace += ft_ragged_bytes(run, params->schedule.q_tiles, true);
  if (workspace && *units > 1)
    place_parts(&params->parts, workspace, *units, FT_STREAM_PARTS_OF_BLOCK * rows);
  return FT_OK;
}

static bool has_longest(const struct ft_launch_plan *plan) {
  return ft_schedule_of(plan->request, plan->config) == FT_SCHEDULE_LONGEST;
}

/* The longest walks under a block mask. Where the host does not know how long its rows are, all
 * are taken to be equally long. */
static struct ft_key_parts parts_of_longest(const struct ft_forward_params *params,
                                            const struct ft_launch_plan *plan,
                                            const struct fatune_mask *mask,
                                            const struct ft_walks *walks) {
  const int64_t heads = (int64_t)params->sequence.batch * params->sequence.heads_q;
  struct ft_key_parts parts;
  if (!mask || !mask->row_counts) {
    parts = ft_key_parts_of(walks, plan->arch);
    parts.ranks = parts.most > 1 ? params->schedule.q_tiles : 0;
    return parts;
  }
  const struct ft_mask_rows rows = {
      .counts = mask->row_counts,
      .rows = mask->row_blocks,
      .tiles = (mask->rows / walks->block_m) << ft_pack_of_code(params->sequence.pack_code).bits,
      .steps_of_a_block = mask->cols / walks->block_n,
      .heads = heads,
  };
  return ft_key_parts_of_rows(&rows, walks, plan->arch);
}

static void divide_longest(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                           const struct fatune_mask *mask, const struct ft_walks *walks,
                           uint64_t workspace, int64_t *units) {
  const int64_t heads = (int64_t)params->sequence.batch * params->sequence.heads_q;
  params->parts.rows = 0; /* of divided tiles */
  if (!workspace) return;
  const struct ft_key_parts divided = parts_of_longest(params, plan, mask, walks);
  if (divided.most == 1) return;
  params->parts.steps = (int32_t)divided.steps;
  place_parts(&params->parts, workspace, divided.most,
              heads * divided.ranks * room_of_part(params, walks->block_m));
  *units += heads * divided.ranks * (divided.most - 1);
}

int ft_forward_divide(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                      const struct ft_run *run, const fatune_arguments *arguments,
                      struct ft_walks *walks, int64_t *units) {
  enum { ALIGNMENT = 256 };
  struct ft_arg_key_parts *const parts = &params->parts;
  const uint64_t workspace = (uintptr_t)arguments->workspace;
  const int64_t tiles = *units,
                packed = (int64_t)1 << ft_pack_of_code(params->sequence.pack_code).bits;
  parts->rows = run->batch * run->heads_q * run->nq;
  parts->most = 1;
  parts->steps = INT32_MAX;
  if (workspace % ALIGNMENT != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.workspace is %p; allowed: a multiple of 256, or NULL",
                   arguments->workspace);
  walks->tiles = tiles;
  walks->alike = (int64_t)params->schedule.q_tiles * params->sequence.group;
  walks->rows = parts->rows;
  if (run->ragged)
    walks->steps = steps_of_table(params, run, walks);
  else
    ft_walks_measure(walks, &run->visibility, packed);
  if (has_shares(plan)) return divide_by_shares(params, plan, run, walks, workspace, units);
  if (has_longest(plan)) {
    divide_longest(params, plan, arguments->mask, walks, workspace, units);
    return FT_OK;
  }
  if (!workspace) return FT_OK;
  const struct ft_key_parts divided = ft_key_parts_of(walks, plan->arch);
  if (divided.most == 1) return FT_OK;
  parts->steps = (int32_t)divided.steps;
  place_parts(parts, workspace, divided.most, parts->rows);
  *units = tiles * divided.most;
  return FT_OK;
}

/* A tile has the rows of all heads of a pack, so these must have the same blocks of a mask. */
struct ft_pack ft_forward_pack(const struct ft_launch_plan *plan, const struct ft_run *run,
                               const fatune_arguments *arguments) {
  if (arguments->mask && arguments->mask->heads != 1) return (struct ft_pack){0, 1};
  return ft_pack_of_group(plan->config, plan->request->mask_rows > 0, run->heads_q / run->heads_kv,
                          run->nq);
}

int ft_forward_clusters(const struct ft_launch_plan *plan, int parts, int64_t *blocks) {
  if (ft_schedule_of(plan->request, plan->config) != FT_SCHEDULE_CLUSTER) return FT_OK;
  if (*blocks > INT32_MAX / parts)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments: %lld work tiles, each with a cluster of %d blocks, are more than the "
        "2^31 - 1 blocks of one launch",
        (long long)*blocks, parts);
  *blocks *= parts;
  return FT_OK;
}

struct ft_launch_kernel ft_forward_merge(const struct ft_forward_params *params,
                                         const struct ft_launch_plan *plan, int64_t tiles) {
  enum { WARPS = 4, EARLY = 90 }; /* MERGE_WARPS: each puts a row together; ptx_dependent */
  const int64_t rows = room_of_part(params, ft_config_block_m(plan->config));
  if (params->parts.most == 1) return (struct ft_launch_kernel){0};
  const bool shares = has_shares(plan); /* then a block begins at most one walk that others end */
  const int64_t walks = shares              ? params->parts.most
                        : has_longest(plan) ? params->parts.rows / rows
                                            : tiles;
  return (struct ft_launch_kernel){.grid = (unsigned)(walks * ((rows + WARPS - 1) / WARPS)),
                                   .threads = 32 * WARPS,
                                   .early = shares || plan->arch->sm >= EARLY};
}

int ft_forward_list_bytes(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                          size_t *bytes) {
  struct ft_run run;
  FT_TRY(ft_run_read_lengths(&run, plan->request, arguments));
  const int64_t numbers = ft_ragged_numbers(&run, run.nq, ft_config_block_m(plan->config));
  *bytes = ft_ragged_bytes(&run, numbers, false);
  return FT_OK;
}

/* No smaller run needs more, whatever it packs: so heads are counted one by one here, and a tile
 * may have the rows of all heads. */
int ft_forward_workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                         struct ft_walks *walks, size_t *bytes) {
  enum { PACKED_MOST = 64 };
  struct ft_run run;
  FT_TRY(ft_run_read_lengths(&run, plan->request, arguments));
  const int64_t q_tiles = ft_schedule_tiles(run.nq, plan->request->mask_rows, walks->block_m);
  int64_t heads = 1; /* and rows of no head */
  while (heads < run.heads_q && heads < PACKED_MOST) heads *= 2;
  const int64_t rows = run.nq < walks->block_m / heads ? run.nq * heads : walks->block_m;
  if (__builtin_mul_overflow(q_tiles, run.batch * run.heads_q, &walks->tiles))
    walks->tiles = INT32_MAX;
  walks->steps = (run.nk + walks->block_n - 1) / walks->block_n;
  const int64_t parts =
      has_shares(plan) ? FT_STREAM_PARTS_OF_BLOCK * (run.ragged ? resident_blocks(walks, plan->arch)
                                                                : sharing_blocks(walks, plan->arch))
                       : ft_key_parts_most(walks, plan->arch);
  *bytes = ft_ragged_bytes(&run, ft_ragged_numbers(&run, run.nq * heads, walks->block_m), true) +
           (size_t)bytes_of_parts(parts * rows, plan->request->head_dim_v);
  return FT_OK;
}

void ft_forward_describe_parts(const struct ft_forward_params *params, int head_dim_v, bool written,
                               struct ft_launch_tensors *tensors) {
  const struct ft_arg_key_parts *const parts = &params->parts;
  if (parts->most == 1) return;
  ft_add_work(tensors, "O of the parts", parts->o, parts->most, parts->rows * head_dim_v)
      ->writable = written;
  ft_add_work(tensors, "LSE of the parts", parts->lse, parts->most, parts->rows)->writable =
      written;
}

void ft_forward_describe(const struct ft_forward_params *params, const struct ft_launch_plan *plan,
                         bool makes_list, bool in_halves, struct ft_launch_tensors *tensors) {
  const struct ft_request *const request = plan->request;
  const int d = request->head_dim, dv = request->head_dim_v;
  const struct ft_arg_sequence *const sequence = &params->sequence;
  const bool all_in_halves = in_halves && request->dtype == FT_E4M3;
  ft_launch_tensors_begin(tensors, all_in_halves ? ft_operand_dtype(request) : request->dtype,
                          sequence);
  if (request->ragged) tensors->batch = 1;
  const struct ft_pack pack = ft_pack_of_code(sequence->pack_code);
  struct ft_emulated_tensor *const q =
      ft_add_tensor(tensors, "Q", &params->q, FT_OF_QUERIES, all_in_halves ? d / 2 : d);
  q->packed_heads = pack.heads;
  q->packed_rows = 1 << pack.bits;
  ft_pages_describe(params, request, in_halves, tensors);
  ft_add_output(tensors, "O", &params->o, FT_OF_QUERIES, dv, request)->writable = true;
  ft_ragged_describe(&params->ragged, has_shares(plan), makes_list, tensors);
  if (params->lse) ft_add_statistic(tensors, "LSE", params->lse)->writable = true;
  if (params->sinks) ft_add_work(tensors, "the sinks", params->sinks, 1, tensors->heads_q);
  ft_add_seeds(tensors, &params->dropout);
  ft_add_captured(tensors, &params->score, plan->score);
}

void ft_forward_describe_descales(const struct ft_arg_descales *descales, int64_t batch,
                                  int descale_rows, struct ft_launch_tensors *tensors) {
  const struct {
    const char *name;
    const struct ft_arg_descale *of;
    int64_t heads, rows;
  } all[] = {{"the descales of Q", &descales->q, tensors->heads_q, tensors->nq},
             {"the descales of K", &descales->k, tensors->heads_kv, tensors->nk},
             {"the descales of V", &descales->v, tensors->heads_kv, tensors->nk}};
  for (int i = 0; i < 3; i++) {
    if (!all[i].of->data) continue;
    struct ft_emulated_tensor *const added = ft_add_work(
        tensors, all[i].name, all[i].of->data, 1, ft_descale_blocks(descale_rows, all[i].rows));
    added->extents[0] = all[i].of->batch == 0 ? 1 : batch;
    added->extents[2] = all[i].of->head == 0 ? 1 : all[i].heads;
    added->strides[0] = all[i].of->batch;
    added->strides[2] = all[i].of->head;
  }
}
