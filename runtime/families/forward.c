/* forward.c: what the launches of all forward families have in common.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params; those -> the memory of a run. */
#include "runtime/families/forward.h"

#include <string.h>

#include "generator/schedule.h"
#include "generator/status.h"
#include "runtime/launch_score.h"

static int read_tensors(struct ft_forward_params *params, const struct ft_request *request,
                        const struct ft_run *run, const fatune_arguments *arguments) {
  const int64_t batch = run->batch, nq = run->nq, nk = run->nk;
  const int hq = run->heads_q, hkv = run->heads_kv;
  const int d = request->head_dim, dv = request->head_dim_v;
  const struct ft_view q = {"q", &arguments->q, batch, nq, hq, d, false};
  const struct ft_view k = {"k", &arguments->k, batch, nk, hkv, d, false};
  const struct ft_view v = {"v", &arguments->v, batch, nk, hkv, dv, false};
  const struct ft_view o = {"o", &arguments->o, batch, nq, hq, dv, true};
  FT_TRY(ft_view_read(&q, &params->q));
  FT_TRY(ft_view_read(&k, &params->k));
  FT_TRY(ft_view_read(&v, &params->v));
  FT_TRY(ft_view_read(&o, &params->o));
  const uint64_t written = params->o.data;
  if (written == params->q.data || written == params->k.data || written == params->v.data)
    return ft_fail(FT_E_ARGUMENT, "arguments.o.data is that of an input; o must not share memory");

  params->lse = (uintptr_t)arguments->lse;
  if (params->lse % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is %p; allowed: a multiple of 4, or NULL",
                   (const void *)arguments->lse);
  if (params->lse == written)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is arguments.o.data; they must not share memory");
  return FT_OK;
}

int64_t ft_forward_kv_bytes(const struct ft_request *request, const struct ft_run *run) {
  return run->nk * (request->head_dim + request->head_dim_v) * ft_dtype_bytes(request->dtype);
}

static int read_geometry(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                         const struct ft_run *run, int packed_heads, int64_t *blocks) {
  const struct ft_request *const request = plan->request;
  const int block_m = ft_config_block_m(plan->config);
  const int64_t q_tiles = ft_schedule_tiles(run->nq * packed_heads, request->mask_rows, block_m);
  const int64_t batch_heads = run->batch * (run->heads_q / packed_heads); /* < 2^62 */
  if (__builtin_mul_overflow(q_tiles, batch_heads, blocks) || *blocks > INT32_MAX)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments: batch %lld x heads_q %d x %lld tiles of %d rows (seqlen_q %lld) is more "
        "than the 2^31 - 1 blocks of one launch",
        (long long)run->batch, run->heads_q, (long long)q_tiles, block_m, (long long)run->nq);
  const int group = run->heads_q / run->heads_kv / packed_heads;
  params->sequence = (struct ft_arg_sequence){.nq = (int32_t)run->nq * packed_heads,
                                              .nk = (int32_t)run->nk,
                                              .heads_q = run->heads_q / packed_heads,
                                              .group = group,
                                              .heads_kv = run->heads_kv,
                                              .pack_bits = __builtin_ctz((unsigned)packed_heads),
                                              .batch = (int32_t)run->batch};
  params->schedule.q_tiles = (int32_t)q_tiles;
  if (ft_schedule_of(request, plan->config) == FT_SCHEDULE_LPT)
    params->schedule.l2_section_heads = (int32_t)ft_schedule_section(
        request, plan->arch, ft_forward_kv_bytes(request, run), group, batch_heads);
  return FT_OK;
}

int ft_forward_prepare(struct ft_forward_params *params, const struct ft_launch_plan *plan,
                       const struct ft_run *run, const fatune_arguments *arguments,
                       int packed_heads, int64_t *blocks) {
  memset(params, 0, sizeof *params);
  FT_TRY(read_geometry(params, plan, run, packed_heads, blocks));
  FT_TRY(read_tensors(params, plan->request, run, arguments));
  params->softmax = run->softmax;
  params->dropout = run->dropout;
  FT_TRY(ft_score_arguments_read(&params->score, &params->softmax, plan, run, arguments, 0));
  return ft_run_read_visibility(run, plan->request, arguments->mask, &params->visibility);
}

void ft_forward_describe(const struct ft_forward_params *params, const struct ft_launch_plan *plan,
                         struct ft_launch_tensors *tensors) {
  const struct ft_request *const request = plan->request;
  const int d = request->head_dim, dv = request->head_dim_v;
  const struct ft_arg_sequence *const sequence = &params->sequence;
  ft_launch_tensors_begin(tensors, request->dtype, sequence);
  ft_add_tensor(tensors, "Q", &params->q, FT_OF_QUERIES, d)->packed_heads = 1
                                                                            << sequence->pack_bits;
  ft_add_tensor(tensors, "K", &params->k, FT_OF_KEYS, d);
  ft_add_tensor(tensors, "V", &params->v, FT_OF_KEYS, dv);
  ft_add_tensor(tensors, "O", &params->o, FT_OF_QUERIES, dv)->writable = true;
  if (params->lse) ft_add_statistic(tensors, "LSE", params->lse)->writable = true;
  ft_add_seeds(tensors, &params->dropout);
  ft_add_captured(tensors, &params->score, plan->score);
}
