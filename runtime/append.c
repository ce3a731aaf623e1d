/* append.c: new rows of K and V behind those there are.
 * in -> out: session + request + arguments -> struct ft_append_params -> a kernel on a stream. */
#include "runtime/append.h"

#include <string.h>

#include "generator/arguments.h"
#include "generator/families/append.h"
#include "generator/status.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/families/pages.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_tensors.h"
#include "runtime/own_kernels.h"
#include "runtime/pages_check.h"
#include "runtime/ragged_check.h"
#include "runtime/session.h"

/* A call as it was checked. */
struct appended {
  struct ft_run run;
  struct ft_arg_pages pages;
  struct ft_arg_tensor k, v, to_k, to_v; /* strides in elements */
  int64_t rows;                          /* new ones of all batch entries */
  int64_t to_batch, to_rows; /* extents of to_k and to_v: pages and their rows, or not */
};

/* ---- the arguments ---- */

static int read_tensors(struct appended *call, const struct ft_request *request,
                        const fatune_arguments *arguments, const fatune_tensor *k,
                        const fatune_tensor *v) {
  const struct ft_run *const run = &call->run;
  const int heads = run->heads_kv, d = request->head_dim, dv = request->head_dim_v;
  const int64_t to_batch = call->to_batch, to_rows = call->to_rows;
  const int bytes = ft_dtype_bytes(ft_kv_dtype(request));
  const struct ft_view from_k = {"new_k", k, run->tensor_batch, run->nq, heads, d, false, bytes};
  const struct ft_view from_v = {"new_v", v, run->tensor_batch, run->nq, heads, dv, false, bytes};
  const struct ft_view to_k = {"k", &arguments->k, to_batch, to_rows, heads, d, true, bytes};
  const struct ft_view to_v = {"v", &arguments->v, to_batch, to_rows, heads, dv, true, bytes};
  FT_TRY(ft_view_read(&from_k, &call->k));
  FT_TRY(ft_view_read(&from_v, &call->v));
  FT_TRY(ft_view_read(&to_k, &call->to_k));
  FT_TRY(ft_view_read(&to_v, &call->to_v));
  if (call->to_k.data != call->to_v.data && call->to_k.data != call->k.data &&
      call->to_k.data != call->v.data && call->to_v.data != call->k.data &&
      call->to_v.data != call->v.data)
    return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "arguments.k and .v must not share memory with each other, new_k, "
                                "new_v");
}

static struct ft_append_params params_of(const struct appended *call,
                                         const struct ft_request *request,
                                         const fatune_arguments *arguments) {
  const struct ft_run *const run = &call->run;
  const int bytes = ft_dtype_bytes(ft_kv_dtype(request));
  const int64_t of_table = call->pages.columns * (int64_t)run->page;
  struct ft_append_params params;
  memset(&params, 0, sizeof params);
  params.k = call->k;
  params.v = call->v;
  params.to_k = call->to_k;
  params.to_v = call->to_v;
  struct ft_arg_tensor *const tensors[] = {&params.k, &params.v, &params.to_k, &params.to_v};
  for (int n = 0; n < 4; n++) ft_tensor_count_in_halves(tensors[n], bytes);
  params.starts_q = (uintptr_t)arguments->cu_seqlens_q;
  params.used_q = (uintptr_t)arguments->seqused_q;
  params.starts_k = (uintptr_t)arguments->cu_seqlens_k;
  params.lengths = (uintptr_t)arguments->seqused_k;
  params.table = call->pages.table;
  params.table_batch = call->pages.batch;
  params.table_column = call->pages.column;
  params.page_bits = run->page > 0 ? __builtin_ctz((unsigned)run->page) : 0;
  params.batch = (int32_t)run->batch;
  params.heads = run->heads_kv;
  params.rows = (int32_t)run->nq;
  params.all_rows = (int32_t)call->rows;
  params.room = (int32_t)(run->page > 0 ? of_table : run->nk);
  return params;
}

/* ---- the launch ---- */

static void add(struct ft_launch_tensors *all, const char *name, const struct ft_arg_tensor *tensor,
                const int64_t extents[3], int dim, bool writable) {
  struct ft_emulated_tensor *const added = ft_add_tensor(all, name, tensor, FT_OF_QUERIES, dim);
  for (int n = 0; n < 3; n++) added->extents[n] = extents[n];
  added->writable = writable;
}

static void tell_emulator(const struct appended *call, const struct ft_append_params *params,
                          const struct ft_request *request) {
  const struct ft_run *const run = &call->run;
  const struct ft_arg_sequence sequence = {
      .batch = (int32_t)run->batch, .nq = 1, .heads_q = 1, .heads_kv = 1, .nk = 1};
  const int64_t from[3] = {run->tensor_batch, run->nq, run->heads_kv};
  const int64_t to[3] = {call->to_batch, call->to_rows, run->heads_kv};
  struct ft_launch_tensors all;
  ft_launch_tensors_begin(&all, ft_kv_dtype(request), &sequence);
  add(&all, "new_k", &call->k, from, request->head_dim, false);
  add(&all, "new_v", &call->v, from, request->head_dim_v, false);
  add(&all, "K", &call->to_k, to, request->head_dim, true);
  add(&all, "V", &call->to_v, to, request->head_dim_v, true);
  const int64_t batch = run->batch;
  if (params->starts_q) ft_add_work(&all, "cu_seqlens_q", params->starts_q, 1, batch + 1);
  if (params->used_q) ft_add_work(&all, "seqused_q", params->used_q, 1, batch);
  if (params->starts_k) ft_add_work(&all, "cu_seqlens_k", params->starts_k, 1, batch + 1);
  if (params->lengths) ft_add_work(&all, "seqused_k", params->lengths, 1, batch);
  ft_pages_describe_table(&call->pages, batch, &all);
  ft_emulator_expect(all.tensors, all.count);
}

static int blocks_of(const struct appended *call, int rows_of_block, unsigned *blocks) {
  int64_t items;
  if (__builtin_mul_overflow(call->rows, (int64_t)call->run.heads_kv, &items) ||
      call->rows > INT32_MAX || (items - 1) / rows_of_block >= INT32_MAX)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments: %lld new rows x heads_kv %d; allowed: less than 2^31 rows, and 2^31 "
                   "blocks of %d",
                   (long long)call->rows, call->run.heads_kv, rows_of_block);
  *blocks = (unsigned)((items - 1) / rows_of_block + 1);
  return FT_OK;
}

static int launch(const struct appended *call, const struct ft_append_params *params,
                  const struct ft_request *request, const struct ft_own_kernel *kernel,
                  const struct ft_driver *driver, void *stream) {
  unsigned blocks = 0;
  FT_TRY(blocks_of(call, ft_append_budget(&kernel->source.budget)->rows, &blocks));
  if (driver->emulated) tell_emulator(call, params, request);
  return ft_own_kernel_launch(kernel, 0, blocks, 0, params, driver, stream);
}

/* What the kernel's text depends on, and nothing else: one kernel serves all such requests. */
static struct ft_request own_request(const struct ft_request *request) {
  struct ft_request own = ft_request_kernel_class(request);
  own.causal = FT_CAUSAL_NONE;
  own.window = FT_WINDOW_NONE;
  own.sinks = own.ragged = own.dropout = false;
  own.score = 0;
  own.pages = own.mask_rows = own.mask_cols = 0;
  return own;
}

int ft_append(fatune_session *session, const struct ft_request *request,
              const fatune_arguments *given, const fatune_tensor *k, const fatune_tensor *v,
              void *stream) {
  const struct ft_driver *const driver = &session->driver;
  const struct ft_own_kernel *kernel;
  fatune_arguments room;
  const fatune_arguments *arguments;
  struct appended call = {.rows = 0};
  if (!k || !v) return ft_fail(FT_E_ARGUMENT, "%s is NULL", k ? "new_v" : "new_k");
  if (request->pass != FT_FORWARD)
    return ft_fail(FT_E_ARGUMENT, "the plan's pass is backward; allowed: forward");
  FT_TRY(ft_arguments_read(&arguments, &room, given));
  FT_TRY(ft_run_read(&call.run, request, arguments));
  FT_TRY(ft_pages_read(&call.pages, &call.run, arguments));
  call.rows = call.run.tensor_batch * call.run.nq;
  call.to_batch = call.run.page > 0 ? call.pages.count : call.run.tensor_batch;
  call.to_rows = call.run.page > 0 ? call.run.page : call.run.nk;
  FT_TRY(read_tensors(&call, request, arguments, k, v));
  if (driver->emulated || session->checks) {
    FT_TRY(ft_ragged_check(request, arguments, driver, stream));
    FT_TRY(ft_pages_check(request, arguments, driver, stream));
  }
  const struct ft_request own = own_request(request);
  FT_TRY(
      ft_own_kernel(&kernel, session, &own, &ft_append_family, "append once before the capture"));
  const struct ft_append_params params = params_of(&call, request, arguments);
  return launch(&call, &params, request, kernel, driver, stream);
}
