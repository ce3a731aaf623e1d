/* backward.c: what the launches of all backward families share.
 * in -> out: plan + fatune_arguments -> struct ft_backward_params, places in the workspace. */
#include "runtime/families/backward.h"

#include <string.h>

#include "generator/schedule.h"
#include "generator/status.h"
#include "runtime/families/column_order.h"
#include "runtime/families/ragged.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_score.h"

/* ---- tensors ---- */

enum { INPUTS = 5, TENSORS = 8 };

/* A tensor to be checked, and where it goes. */
struct place_of {
  struct ft_view view;
  struct ft_arg_tensor *tensor;
};

static int check_own_memory(const struct place_of tensors[TENSORS], uint64_t lse) {
  for (int output = INPUTS; output < TENSORS; output++) {
    const uint64_t address = tensors[output].tensor->data;
    for (int other = 0; other < output; other++)
      if (address == tensors[other].tensor->data)
        return ft_fail(FT_E_ARGUMENT,
                       "arguments.%s.data is that of %s; a gradient must not share memory",
                       tensors[output].view.name, tensors[other].view.name);
    if (address == lse)
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.%s.data is arguments.lse; a gradient must not share "
                     "memory",
                     tensors[output].view.name);
  }
  return FT_OK;
}

static int read_statistic(const char *name, const float *data, bool required, uint64_t *address) {
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
  const int64_t batch = run->tensor_batch, nq = run->nq, nk = run->nk;
  const int hq = run->heads_q, hkv = run->heads_kv;
  const int d = request->head_dim, dv = request->head_dim_v;
  const int bytes = ft_dtype_bytes(request->dtype),
            of_gradients = ft_dtype_bytes(ft_output_dtype(request));
  const struct place_of tensors[TENSORS] = {
      {{"q", &arguments->q, batch, nq, hq, d, false, bytes}, &params->q},
      {{"k", &arguments->k, batch, nk, hkv, d, false, bytes}, &params->k},
      {{"v", &arguments->v, batch, nk, hkv, dv, false, bytes}, &params->v},
      {{"o", &arguments->o, batch, nq, hq, dv, false, bytes}, &params->o},
      {{"dout", &arguments->dout, batch, nq, hq, dv, false, bytes}, &params->dout},
      {{"dq", &arguments->dq, batch, nq, hq, d, true, of_gradients}, &params->dq},
      {{"dk", &arguments->dk, batch, nk, hkv, d, true, of_gradients}, &params->dk},
      {{"dv", &arguments->dv, batch, nk, hkv, dv, true, of_gradients}, &params->dv}};
  for (int n = 0; n < TENSORS; n++) FT_TRY(ft_view_read(&tensors[n].view, tensors[n].tensor));
  for (int n = INPUTS; n < TENSORS && ft_outputs_are_wide(request); n++)
    ft_tensor_count_in_halves(tensors[n].tensor, of_gradients);
  FT_TRY(read_statistic("lse", arguments->lse, true, &params->lse));
  FT_TRY(read_statistic("dlse", arguments->dlse, false, &params->dlse));
  return check_own_memory(tensors, params->lse);
}

/* ---- tiles ---- */

/* Tiles of all heads; what: "heads_q", or "heads_kv". */
static int count_tiles(const struct ft_run *run, const char *what, int heads, int64_t of_head,
                       int64_t *tiles) {
  if (!__builtin_mul_overflow(of_head, run->tensor_batch * heads, tiles) && *tiles <= INT32_MAX)
    return FT_OK;
  return ft_fail(
      FT_E_ARGUMENT,
      "arguments: batch %lld x %s %d x %lld tiles (seqlen_q %lld, seqlen_k %lld) is more "
      "than the 2^31 - 1 blocks of one launch",
      (long long)run->batch, what, heads, (long long)of_head, (long long)run->nq,
      (long long)run->nk);
}

static int64_t k_tiles_of_head(const struct ft_launch_plan *plan, const struct ft_run *run) {
  const int block_n = ft_config_block_n(plan->config);
  return run->ragged ? ft_ragged_numbers(run, run->nk, block_n)
                     : ft_schedule_tiles(run->nk, plan->request->mask_cols, block_n);
}

static int count_q_tiles(const struct ft_launch_plan *plan, const struct ft_run *run,
                         int64_t *of_head, int64_t *tiles) {
  const int block_m = ft_config_block_m(plan->config);
  *of_head = run->ragged ? ft_ragged_numbers(run, run->nq, block_m)
                         : ft_schedule_tiles(run->nq, plan->request->mask_rows, block_m);
  return count_tiles(run, "heads_q", run->heads_q, *of_head, tiles);
}

static int64_t section_heads(const struct ft_launch_plan *plan, const struct ft_backward_work *work,
                             const struct ft_run *run, int64_t k_tiles) {
  const struct ft_request *const request = plan->request;
  const int64_t group = run->heads_q / run->heads_kv, bytes = ft_dtype_bytes(request->dtype);
  const struct ft_key_tiles of = {
      .bytes = group * run->nq * (request->head_dim + request->head_dim_v) * bytes,
      .heads = run->tensor_batch * run->heads_kv,
      .tiles = k_tiles,
      .slots = (int64_t)plan->arch->sm_count * plan->budget->ctas_per_sm / work->blocks,
      .ordered = work->counters > 0};
  return ft_schedule_key_section(request, plan->arch, &of);
}

static int read_geometry(struct ft_backward_params *params, const struct ft_launch_plan *plan,
                         const struct ft_backward_work *work, const struct ft_run *run,
                         int64_t *q_tiles, int64_t *k_tiles) {
  int64_t q_tiles_of_head;
  const int64_t of_kv_head = k_tiles_of_head(plan, run);
  FT_TRY(count_q_tiles(plan, run, &q_tiles_of_head, q_tiles));
  FT_TRY(count_tiles(run, "heads_kv", run->heads_kv, of_kv_head, k_tiles));
  const int group = run->heads_q / run->heads_kv;
  params->sequence = (struct ft_arg_sequence){.nq = (int32_t)run->nq,
                                              .nk = (int32_t)run->nk,
                                              .heads_q = run->heads_q,
                                              .group = group,
                                              .heads_kv = run->heads_kv,
                                              .batch = (int32_t)run->batch};
  params->schedule = (struct ft_arg_schedule){
      .q_tiles = (int32_t)q_tiles_of_head,
      .k_tiles = (int32_t)of_kv_head,
      .l2_section_heads = (int32_t)section_heads(plan, work, run, of_kv_head)};
  return FT_OK;
}

/* ---- workspace ---- */

/* Bytes of a part, in whole multiples of the alignment. Tiles are < 2^31, words of one < 2^19. */
static int64_t bytes_of(int64_t words, int64_t tiles) {
  enum { WORD = 4, ALIGNMENT = 256 };
  return (words * tiles * WORD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* parts: the most parts that divided walks have. heads: kv heads of all batch entries, which are at
 * least as many as there are L2 sections. */
static int64_t workspace_bytes(const struct ft_backward_work *work, int64_t tiles, int64_t parts,
                               int64_t heads) {
  return bytes_of(work->dq_sum, tiles) + bytes_of(work->row_stats, tiles) +
         bytes_of(work->counters, tiles) + bytes_of(work->sink_sums, tiles) +
         bytes_of(work->part_sums, parts) + bytes_of(work->takes_tiles ? 1 : 0, 1) +
         bytes_of(work->early_dq ? 1 : 0, heads);
}

int64_t ft_backward_sink_sums(const struct ft_request *request, int prepare_threads) {
  return request->sinks ? prepare_threads / 32 : 0;
}

static int read_workspace(struct ft_backward_params *params, const struct ft_backward_work *work,
                          int64_t tiles, int64_t parts, int64_t behind, const void *workspace,
                          uint64_t *rest) {
  const uint64_t begin = (uintptr_t)workspace;
  const int64_t heads = (int64_t)params->sequence.batch * params->sequence.heads_kv;
  const int64_t bytes = workspace_bytes(work, tiles, parts, heads) + behind;
  if (!workspace)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.workspace is NULL; this run needs %lld bytes of device memory "
                   "(fatune_plan_workspace_for)",
                   (long long)bytes);
  if (begin % 256 != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.workspace is %p; allowed: a multiple of 256",
                   workspace);
  const uint64_t row_stats = begin + (uint64_t)bytes_of(work->dq_sum, tiles);
  const uint64_t counters = row_stats + (uint64_t)bytes_of(work->row_stats, tiles);
  params->dq_sum = work->dq_sum > 0 ? begin : 0;
  params->row_stats = row_stats;
  params->counters = work->counters > 0 ? counters : 0;
  const uint64_t sink_sums = counters + (uint64_t)bytes_of(work->counters, tiles);
  params->sink_sums = work->sink_sums > 0 ? sink_sums : 0;
  const uint64_t part_sums = sink_sums + (uint64_t)bytes_of(work->sink_sums, tiles);
  params->column_order.sums = params->column_order.parts > 0 ? part_sums : 0;
  const uint64_t counts = part_sums + (uint64_t)bytes_of(work->part_sums, parts);
  params->tiles_taken = work->takes_tiles ? counts : 0;
  params->section_counts =
      work->early_dq ? counts + (uint64_t)bytes_of(work->takes_tiles ? 1 : 0, 1) : 0;
  *rest = begin + (uint64_t)workspace_bytes(work, tiles, parts, heads);
  return FT_OK;
}

static struct ft_dividing dividing_of(const struct ft_launch_plan *plan,
                                      const struct ft_backward_work *work) {
  return (struct ft_dividing){.part_steps = work->part_steps,
                              .slots = (int64_t)plan->arch->sm_count * plan->budget->ctas_per_sm /
                                       work->blocks};
}

static int64_t parts_most(const struct ft_launch_plan *plan, const struct ft_backward_work *work,
                          const struct ft_run *run, int64_t q_tiles_of_head) {
  const struct ft_dividing dividing = dividing_of(plan, work);
  return ft_walk_parts_most(&dividing, run, q_tiles_of_head, k_tiles_of_head(plan, run));
}

/* Of the list of key tiles, in whole multiples of the alignment. */
static int64_t list_bytes(const struct ft_launch_plan *plan, const struct ft_run *run) {
  return (int64_t)ft_ragged_bytes(run, k_tiles_of_head(plan, run), false);
}

int ft_backward_workspace(const struct ft_launch_plan *plan, const struct ft_backward_work *work,
                          const fatune_arguments *arguments, size_t *bytes) {
  struct ft_run run;
  int64_t of_head, tiles;
  FT_TRY(ft_run_read(&run, plan->request, arguments));
  FT_TRY(count_q_tiles(plan, &run, &of_head, &tiles));
  int64_t of_score;
  FT_TRY(ft_score_workspace(plan, arguments, &of_score));
  const int64_t parts = parts_most(plan, work, &run, of_head);
  const int64_t heads = run.tensor_batch * run.heads_kv;
  *bytes = (size_t)(workspace_bytes(work, tiles, parts, heads) + list_bytes(plan, &run) + of_score);
  return FT_OK;
}

/* ---- the launch ---- */

int ft_backward_prepare(struct ft_backward_params *params, struct ft_arg_score *score,
                        const struct ft_launch_plan *plan, const struct ft_backward_work *work,
                        const fatune_arguments *arguments, int64_t *q_tiles, int64_t *k_tiles) {
  struct ft_run run;
  memset(params, 0, sizeof *params);
  FT_TRY(ft_run_read(&run, plan->request, arguments));
  FT_TRY(read_geometry(params, plan, work, &run, q_tiles, k_tiles));
  FT_TRY(read_tensors(params, plan->request, &run, arguments));
  FT_TRY(ft_run_read_visibility(&run, plan->request, arguments->mask, &params->visibility));
  const int64_t parts = parts_most(plan, work, &run, params->schedule.q_tiles);
  const struct ft_dividing dividing = dividing_of(plan, work);
  ft_column_order_read(&params->column_order, plan, &dividing, &run, arguments->mask, parts);
  FT_TRY(count_tiles(&run, "heads_kv", run.heads_kv,
                     ft_places_of_head(&params->column_order, params->schedule.k_tiles), k_tiles));
  const int64_t of_list = list_bytes(plan, &run); /* of the workspace, behind the rest */
  int64_t of_score;                               /* behind the list */
  uint64_t rest = 0;
  FT_TRY(ft_score_workspace(plan, arguments, &of_score));
  FT_TRY(read_workspace(params, work, *q_tiles, parts, of_list + of_score, arguments->workspace,
                        &rest));
  FT_TRY(ft_ragged_read(&params->ragged, &run, params->schedule.k_tiles, rest, arguments));
  if (run.ragged) params->ragged.numbers_q = params->schedule.q_tiles;
  params->softmax = run.softmax;
  params->dropout = run.dropout;
  FT_TRY(ft_run_read_sinks("sinks", arguments->sinks, plan->request->sinks, &params->sinks));
  FT_TRY(ft_run_read_sinks("dsinks", arguments->dsinks, plan->request->sinks, &params->dsinks));
  return ft_score_arguments_read(score, &params->softmax, plan, &run, arguments,
                                 rest + (uint64_t)of_list);
}

void ft_backward_describe(const struct ft_backward_params *p, const struct ft_request *request,
                          const struct ft_backward_work *work, int64_t tiles,
                          enum ft_backward_kernel kernel, struct ft_launch_tensors *tensors) {
  const int d = request->head_dim, dv = request->head_dim_v;
  const bool divided = p->column_order.parts > 0;
  const bool sums_keys = kernel == FT_BACKWARD_MAIN || (divided && kernel == FT_BACKWARD_CONVERT);
  ft_launch_tensors_begin(tensors, request->dtype, &p->sequence);
  if (request->ragged) tensors->batch = 1;
  ft_add_tensor(tensors, "Q", &p->q, FT_OF_QUERIES, d);
  ft_add_tensor(tensors, "K", &p->k, FT_OF_KEYS, d);
  ft_add_tensor(tensors, "V", &p->v, FT_OF_KEYS, dv);
  ft_add_tensor(tensors, "O", &p->o, FT_OF_QUERIES, dv);
  ft_add_tensor(tensors, "dO", &p->dout, FT_OF_QUERIES, dv);
  ft_add_output(tensors, "dQ", &p->dq, FT_OF_QUERIES, d, request)->writable =
      kernel == FT_BACKWARD_CONVERT;
  ft_add_output(tensors, "dK", &p->dk, FT_OF_KEYS, d, request)->writable = sums_keys;
  ft_add_output(tensors, "dV", &p->dv, FT_OF_KEYS, dv, request)->writable = sums_keys;
  ft_add_statistic(tensors, "LSE", p->lse);
  if (p->dlse) ft_add_statistic(tensors, "dLSE", p->dlse);
  if (p->dq_sum)
    ft_add_work(tensors, "the sums of dQ", p->dq_sum, tiles, work->dq_sum)->writable =
        kernel != FT_BACKWARD_CONVERT;
  ft_add_work(tensors, "the statistics", p->row_stats, tiles, work->row_stats)->writable =
      kernel == FT_BACKWARD_PREPARE;
  if (divided)
    ft_add_work(tensors, "dV and dK of the parts", p->column_order.sums,
                (int64_t)p->sequence.batch * p->sequence.heads_kv * p->column_order.parts,
                work->part_sums)
        ->writable = kernel == FT_BACKWARD_MAIN;
  if (p->counters)
    ft_add_work(tensors, "the counters", p->counters, tiles, work->counters)->writable =
        kernel != FT_BACKWARD_CONVERT;
  if (p->tiles_taken)
    ft_add_work(tensors, "the tiles taken", p->tiles_taken, 1, 1)->writable =
        kernel != FT_BACKWARD_CONVERT;
  if (p->section_counts)
    ft_add_work(tensors, "the counts of L2 sections", p->section_counts,
                (int64_t)p->sequence.batch * p->sequence.heads_kv, 1)
        ->writable = kernel != FT_BACKWARD_CONVERT;
  if (p->sinks) {
    ft_add_work(tensors, "the sinks", p->sinks, 1, tensors->heads_q);
    ft_add_work(tensors, "the gradient of the sinks", p->dsinks, 1, tensors->heads_q)->writable =
        kernel == FT_BACKWARD_CONVERT;
    ft_add_work(tensors, "the sums of the sinks", p->sink_sums, tiles, work->sink_sums)->writable =
        kernel == FT_BACKWARD_PREPARE;
  }
  ft_ragged_describe(&p->ragged, false, kernel == FT_BACKWARD_LIST, tensors);
  ft_add_seeds(tensors, &p->dropout);
}
