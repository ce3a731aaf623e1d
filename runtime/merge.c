/* merge.c: results of separate forwards put together.
 * in -> out: session + fatune_merge_arguments -> struct ft_merge_params -> a kernel on a stream. */
#include <string.h>

#include "generator/arguments.h"
#include "generator/families/merge.h"
#include "generator/status.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_tensors.h"
#include "runtime/own_kernels.h"
#include "runtime/public.h"
#include "runtime/session.h"
#include "runtime/sized_struct.h"

static_assert(sizeof((struct ft_merge_params){0}.parts) ==
                  FATUNE_MERGE_PARTS * sizeof(struct ft_arg_merge_part),
              "as many parts as fatune.h says");

/* ---- the arguments ---- */

static int check_lse(const char *name, int number, const float *lse) {
  if (lse && (uintptr_t)lse % sizeof(float) == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments.%s[%d].lse is %p; allowed: a device address, a multiple of 4", name,
                 number, (const void *)lse);
}

static int read_request(struct ft_request *request, const fatune_merge_arguments *arguments) {
  fatune_request public = FATUNE_REQUEST_INIT;
  if (arguments->dtype == FATUNE_E4M3 || arguments->dtype == FATUNE_TF32)
    return ft_fail(FT_E_ARGUMENT, "arguments.dtype is %s; allowed: fp16, bf16, fp32",
                   ft_dtype_name((enum ft_dtype)arguments->dtype));
  public.dtype = arguments->dtype;
  public.head_dim = public.head_dim_v = arguments->head_dim_v;
  public.batch = arguments->batch;
  public.heads_q = arguments->heads_q;
  public.seqlen_q = arguments->seqlen_q;
  public.sinks = arguments->sinks != NULL;
  return ft_request_from_public(request, &public);
}

static int read_parts(struct ft_merge_params *params, const fatune_merge_arguments *arguments,
                      const struct ft_request *request) {
  const int count = arguments->part_count, heads = request->heads_q, dim = request->head_dim_v;
  if (count < 1 || count > FATUNE_MERGE_PARTS)
    return ft_fail(FT_E_ARGUMENT, "arguments.part_count is %d; allowed: 1 to %d", count,
                   FATUNE_MERGE_PARTS);
  if (!arguments->parts) return ft_fail(FT_E_ARGUMENT, "arguments.parts is NULL");
  for (int n = 0; n < count; n++) {
    const fatune_part *const part = &arguments->parts[n];
    const struct ft_view view = {
        "parts[].o", &part->o, request->batch, request->seqlen_q,
        heads,       dim,      false,          ft_dtype_bytes(request->dtype)};
    const int status = ft_view_read(&view, &params->parts[n].o);
    if (status != FT_OK) return ft_fail_within(status, "part %d", n);
    FT_TRY(check_lse("parts", n, part->lse));
    params->parts[n].lse = (uintptr_t)part->lse;
  }
  return FT_OK;
}

/* A part may be written over, which lets one accumulate: a row is read before it is written. Only
 * the very same place will do. */
static int check_places(const struct ft_merge_params *params) {
  for (int n = 0; n < params->count; n++) {
    const struct ft_arg_tensor *const o = &params->parts[n].o;
    if (o->data == params->o.data && memcmp(&o->stride, &params->o.stride, sizeof o->stride) != 0)
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.o.data is that of part %d with other strides; allowed: memory of "
                     "its own, or a part with its strides",
                     n);
    if (params->parts[n].lse == params->o.data || params->lse == o->data)
      return ft_fail(FT_E_ARGUMENT, "arguments: part %d shares memory between O and LSE", n);
  }
  return FT_OK;
}

static int read_arguments(struct ft_merge_params *params, const fatune_merge_arguments *arguments,
                          struct ft_request *request) {
  memset(params, 0, sizeof *params);
  FT_TRY(read_request(request, arguments));
  const struct ft_view o = {"o",
                            &arguments->o,
                            request->batch,
                            request->seqlen_q,
                            request->heads_q,
                            request->head_dim_v,
                            true,
                            ft_dtype_bytes(request->dtype)};
  FT_TRY(ft_view_read(&o, &params->o));
  FT_TRY(read_parts(params, arguments, request));
  params->lse = (uintptr_t)arguments->lse;
  if (params->lse % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is %p; allowed: a multiple of 4, or NULL",
                   (void *)arguments->lse);
  FT_TRY(ft_run_read_sinks("sinks", arguments->sinks, request->sinks, &params->sinks));
  params->batch = (int32_t)request->batch;
  params->heads = request->heads_q;
  params->nq = (int32_t)request->seqlen_q;
  params->count = arguments->part_count;
  return check_places(params);
}

/* ---- the launch ---- */

static int blocks_of(const struct ft_merge_params *params, int rows_of_block, unsigned *blocks) {
  int64_t rows;
  const int64_t heads = (int64_t)params->batch * params->heads;
  if (__builtin_mul_overflow(heads, params->nq, &rows) ||
      (rows + rows_of_block - 1) / rows_of_block > INT32_MAX)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments: batch %d x heads_q %d x seqlen_q %d rows are more than the 2^31 - 1 "
                   "blocks of one launch take",
                   params->batch, params->heads, params->nq);
  *blocks = (unsigned)((rows + rows_of_block - 1) / rows_of_block);
  return FT_OK;
}

static void tell_emulator(const struct ft_merge_params *params, const struct ft_request *request) {
  const struct ft_arg_sequence sequence = {
      .batch = params->batch, .nq = params->nq, .heads_q = params->heads, .heads_kv = 1, .nk = 1};
  struct ft_launch_tensors all;
  const int dim = request->head_dim_v;
  ft_launch_tensors_begin(&all, request->dtype, &sequence);
  ft_add_tensor(&all, "O", &params->o, FT_OF_QUERIES, dim)->writable = true;
  if (params->lse) ft_add_statistic(&all, "LSE", params->lse)->writable = true;
  for (int n = 0; n < params->count; n++) {
    if (params->parts[n].o.data != params->o.data)
      ft_add_tensor(&all, "O of a part", &params->parts[n].o, FT_OF_QUERIES, dim);
    if (params->parts[n].lse != params->lse)
      ft_add_statistic(&all, "LSE of a part", params->parts[n].lse);
  }
  if (params->sinks) ft_add_work(&all, "the sinks", params->sinks, 1, params->heads);
  ft_emulator_expect(all.tensors, all.count);
}

int fatune_merge(fatune_session *session, const fatune_merge_arguments *given, void *stream) {
  static const fatune_merge_arguments initial = FATUNE_MERGE_ARGUMENTS_INIT;
  static const struct ft_sized_struct form =
      FT_SIZED_STRUCT("arguments", fatune_merge_arguments, part_count, &initial);
  fatune_merge_arguments room;
  const void *arguments;
  struct ft_merge_params params;
  struct ft_request request;
  const struct ft_own_kernel *merger;
  unsigned blocks = 0;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!given) return ft_fail(FT_E_ARGUMENT, "arguments is NULL");
  FT_TRY(ft_session_needs_device(session));
  FT_TRY(ft_sized_read(&form, given, &room, &arguments));
  FT_TRY(read_arguments(&params, arguments, &request));
  FT_TRY(
      ft_own_kernel(&merger, session, &request, &ft_merge_family, "merge once before the capture"));
  FT_TRY(blocks_of(&params, ft_config_block_m(&merger->source.config), &blocks));
  const struct ft_driver *const driver = &session->driver;
  if (driver->emulated) tell_emulator(&params, &request);
  return ft_own_kernel_launch(merger, 0, blocks, 0, &params, driver, stream);
}
