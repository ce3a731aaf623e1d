/* launch_checks.c: the arguments of a run, checked.
 * in -> out: request + fatune_arguments -> struct ft_run; tensor as it should be -> address,
 * strides.
 */
#include "runtime/launch_checks.h"

#include <math.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/mask.h"
#include "runtime/sized_struct.h"

static int check_extent(const char *name, int64_t value) {
  if (value >= 1 && value <= INT32_MAX) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "arguments.%s is %lld; allowed: 1 .. 2^31 - 1, or 0 for the plan's",
                 name, (long long)value);
}

/* A row number and another one together are an int (templates/parts/rows_of_sequences.cu.in), and
 * so is the number of a work tile. */
static int check_rows(const struct ft_run *run) {
  enum { MOST = 1 << 30 };
  if (!run->ragged || (run->nq <= MOST && run->nk <= MOST && run->batch <= MOST)) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments: batch %lld, seqlen_q %lld, seqlen_k %lld; allowed, ragged: at most "
                 "2^30 each",
                 (long long)run->batch, (long long)run->nq, (long long)run->nk);
}

static int read_extents(struct ft_run *run, const struct ft_request *request,
                        const fatune_arguments *arguments) {
  run->batch = arguments->batch ? arguments->batch : request->batch;
  run->nq = arguments->seqlen_q ? arguments->seqlen_q : request->seqlen_q;
  run->nk = arguments->seqlen_k ? arguments->seqlen_k : request->seqlen_k;
  run->heads_q = arguments->heads_q ? arguments->heads_q : request->heads_q;
  run->heads_kv = arguments->heads_kv ? arguments->heads_kv : request->heads_kv;
  FT_TRY(check_extent("batch", run->batch));
  FT_TRY(check_extent("seqlen_q", run->nq));
  FT_TRY(check_extent("seqlen_k", run->nk));
  FT_TRY(check_extent("heads_q", run->heads_q));
  FT_TRY(check_extent("heads_kv", run->heads_kv));
  run->ragged = request->ragged;
  run->tensor_batch = run->ragged ? 1 : run->batch;
  run->page = request->pages;
  FT_TRY(check_rows(run));
  if (run->heads_q % run->heads_kv != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.heads_q is %d; allowed: a multiple of heads_kv, %d",
                   run->heads_q, run->heads_kv);
  return FT_OK;
}

int ft_run_read_lengths(struct ft_run *run, const struct ft_request *request,
                        const fatune_arguments *arguments) {
  *run = (struct ft_run){0};
  return read_extents(run, request, arguments);
}

int ft_run_read_extents(const struct ft_request *request, const fatune_arguments *arguments) {
  struct ft_run run;
  return read_extents(&run, request, arguments);
}

/* ---- tensors ---- */

static int check_stride(const struct ft_view *view, const char *which, int64_t stride,
                        int64_t extent) {
  if (extent == 1) return FT_OK; /* never used */
  const int multiple = 16 / view->element_bytes;
  if (stride < 0 || stride % multiple != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.%s.stride_%s is %lld; allowed: a multiple of %d elements, >= 0",
                   view->name, which, (long long)stride, multiple);
  if (stride == 0 && view->output)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.%s.stride_%s is 0 with an extent of %lld: the output would overlap "
                   "itself; allowed: >= %d",
                   view->name, which, (long long)extent, view->dim);
  if (stride != 0 && stride < view->dim)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments.%s.stride_%s is %lld, less than a row of %d elements; allowed: >= %d%s",
        view->name, which, (long long)stride, view->dim, view->dim,
        view->output ? "" : ", or 0 to broadcast");
  return FT_OK;
}

/* The last byte must be less than 2^63 bytes from the first, and within the address space. */
static int check_span(const struct ft_view *view) {
  const fatune_tensor *const t = view->tensor;
  const int64_t last[3] = {view->batch - 1, view->rows - 1, view->heads - 1};
  const int64_t stride[3] = {t->stride_batch, t->stride_seq, t->stride_head};
  int64_t elements = view->dim, bytes;
  bool overflow = false;
  for (int i = 0; i < 3; i++) {
    int64_t offset;
    if (last[i] == 0) continue;
    overflow |= __builtin_mul_overflow(last[i], stride[i], &offset);
    overflow |= __builtin_add_overflow(elements, offset, &elements);
  }
  overflow |= __builtin_mul_overflow(elements, (int64_t)view->element_bytes, &bytes);
  uintptr_t end;
  if (!overflow) overflow = __builtin_add_overflow((uintptr_t)t->data, (uintptr_t)bytes, &end);
  if (!overflow) return FT_OK;
  return ft_fail(
      FT_E_ARGUMENT,
      "arguments.%s reaches past the address space: strides %lld, %lld, %lld (batch, seq, "
      "head) over extents %lld, %lld, %d",
      view->name, (long long)t->stride_batch, (long long)t->stride_seq, (long long)t->stride_head,
      (long long)view->batch, (long long)view->rows, view->heads);
}

/* Dimensions in order of stride must nest, each beginning past the end of the one before. */
static int check_no_overlap(const struct ft_view *view) {
  const fatune_tensor *const t = view->tensor;
  struct {
    int64_t stride, extent;
  } dims[3] = {
      {t->stride_batch, view->batch}, {t->stride_seq, view->rows}, {t->stride_head, view->heads}};
  int64_t span = view->dim;
  for (int done = 0; done < 3; done++) {
    int least = -1;
    for (int i = 0; i < 3; i++)
      if (dims[i].extent > 1 && (least < 0 || dims[i].stride < dims[least].stride)) least = i;
    if (least < 0) break;
    if (dims[least].stride < span)
      return ft_fail(
          FT_E_ARGUMENT,
          "arguments.%s overlaps itself: a stride of %lld elements where %lld are taken; "
          "strides %lld, %lld, %lld (batch, seq, head) over extents %lld, %lld, %d",
          view->name, (long long)dims[least].stride, (long long)span, (long long)t->stride_batch,
          (long long)t->stride_seq, (long long)t->stride_head, (long long)view->batch,
          (long long)view->rows, view->heads);
    span += dims[least].stride * (dims[least].extent - 1); /* cannot overflow after check_span */
    dims[least].extent = 1;
  }
  return FT_OK;
}

int ft_view_read(const struct ft_view *view, struct ft_arg_tensor *tensor) {
  const fatune_tensor *const t = view->tensor;
  if (!t->data)
    return ft_fail(FT_E_ARGUMENT, "arguments.%s.data is NULL; it is a device address", view->name);
  if ((uintptr_t)t->data % 16 != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.%s.data is %p; allowed: a multiple of 16", view->name,
                   t->data);
  FT_TRY(check_stride(view, "batch", t->stride_batch, view->batch));
  FT_TRY(check_stride(view, "seq", t->stride_seq, view->rows));
  FT_TRY(check_stride(view, "head", t->stride_head, view->heads));
  FT_TRY(check_span(view));
  if (view->rows > 1 && t->stride_seq > INT32_MAX)
    return ft_fail(FT_E_ARGUMENT, "arguments.%s.stride_seq is %lld; allowed: at most 2^31 - 1",
                   view->name, (long long)t->stride_seq);
  if (view->output) FT_TRY(check_no_overlap(view));
  tensor->data = (uintptr_t)t->data;
  /* The stride of an extent of 1 may be any number (PyTorch leaves such). */
  tensor->stride.batch = view->batch == 1 ? 0 : t->stride_batch;
  tensor->stride.row = view->rows == 1 ? 0 : t->stride_seq;
  tensor->stride.head = view->heads == 1 ? 0 : t->stride_head;
  return FT_OK;
}

void ft_tensor_count_in_halves(struct ft_arg_tensor *tensor, int element_bytes) {
  enum { UNIT = 2 };
  struct ft_stride *const stride = &tensor->stride;
  *stride = (struct ft_stride){.batch = stride->batch * element_bytes / UNIT,
                               .row = stride->row * element_bytes / UNIT,
                               .head = stride->head * element_bytes / UNIT};
}

/* ---- numbers ---- */

static int read_scale(struct ft_run *run, const struct ft_request *request, float scale) {
  static const float log2_e = 1.44269504088896340736f;
  if (scale == 0) scale = (float)(1 / sqrt(request->head_dim));
  /* This form fails for NaN. The product is what the kernel uses. */
  if (!(scale > 0) || !isfinite(scale * log2_e))
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.scale is %g; allowed: > 0 and finite, or 0 for 1 / sqrt(head_dim)",
                   (double)scale);
  run->softmax = (struct ft_arg_softmax){.scale = scale, .scale_log2 = scale * log2_e};
  return FT_OK;
}

static int check_device_value(const char *name, const uint64_t *address) {
  if ((uintptr_t)address % sizeof(uint64_t) == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "arguments.%s is %p; allowed: a multiple of 8, or NULL", name,
                 (const void *)address);
}

/* Dropout counts heads by an int over all batch entries. */
static int check_origin_heads(const struct ft_run *run, const struct ft_request *request,
                              const fatune_origin *origin, int64_t heads) {
  if (origin->head + run->heads_q > heads)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.origin.heads is %lld; allowed: at least origin.head + heads_q, %lld",
                   (long long)heads, (long long)(origin->head + run->heads_q));
  if (!request->dropout || (origin->batch + run->batch) * heads <= INT32_MAX) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments.origin.batch is %lld; allowed: with the run's batch, %lld, times the "
                 "heads, %lld, at most 2^31 - 1",
                 (long long)origin->batch, (long long)run->batch, (long long)heads);
}

static int read_dropout(struct ft_run *run, const struct ft_request *request,
                        const fatune_arguments *arguments) {
  enum { ONE = 1 << 14 };
  const float p = arguments->dropout;
  if (!request->dropout && p != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.dropout is %g; allowed: 0, the plan's request has no dropout",
                   (double)p);
  if (!(p >= 0 && p <= 1))
    return ft_fail(FT_E_ARGUMENT, "arguments.dropout is %g; allowed: 0 .. 1", (double)p);
  const long threshold = lroundf(p * ONE);
  const fatune_origin *const origin = &arguments->origin;
  const int64_t heads = origin->heads ? origin->heads : run->heads_q;
  FT_TRY(check_origin_heads(run, request, origin, heads));
  run->dropout = (struct ft_arg_dropout){
      .heads = (int32_t)heads,
      .first_head = request->dropout ? (int32_t)(origin->batch * heads + origin->head) : 0,
      .first_query = (int32_t)origin->query,
      .first_key = (int32_t)origin->key,
      .seed = arguments->seed,
      .offset = arguments->offset,
      .seed_address = (uintptr_t)arguments->seed_device,
      .offset_address = (uintptr_t)arguments->offset_device,
      .threshold = (uint32_t)threshold,
      .rescale = threshold == ONE ? 0 : (float)((double)ONE / (double)(ONE - threshold))};
  FT_TRY(check_device_value("seed_device", arguments->seed_device));
  return check_device_value("offset_device", arguments->offset_device);
}

int ft_run_read_sinks(const char *name, const float *data, bool wanted, uint64_t *address) {
  *address = (uintptr_t)data;
  if ((data != NULL) != wanted)
    return ft_fail(FT_E_ARGUMENT, "arguments.%s is %p; allowed: %s", name, (const void *)data,
                   wanted ? "a device address, the request has sinks"
                          : "NULL, the request has no sinks, or no gradient of them");
  if (*address % sizeof(float) == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "arguments.%s is %p; allowed: a multiple of 4", name,
                 (const void *)data);
}

static int read_descale(const char *name, const fatune_descale *given,
                        struct ft_arg_descale *descale) {
  const bool negative = given->stride_batch < 0;
  if ((uintptr_t)given->data % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.%s.data is %p; allowed: a multiple of 4, or NULL for 1", name,
                   (const void *)given->data);
  if (given->data && (negative || given->stride_head < 0))
    return ft_fail(FT_E_ARGUMENT, "arguments.%s.stride_%s is %lld; allowed: >= 0", name,
                   negative ? "batch" : "head",
                   (long long)(negative ? given->stride_batch : given->stride_head));
  *descale = (struct ft_arg_descale){
      .data = (uintptr_t)given->data, .batch = given->stride_batch, .head = given->stride_head};
  return FT_OK;
}

int ft_run_read_descales(struct ft_arg_descales *descales, const fatune_arguments *arguments) {
  FT_TRY(read_descale("descale_q", &arguments->descale_q, &descales->q));
  FT_TRY(read_descale("descale_k", &arguments->descale_k, &descales->k));
  return read_descale("descale_v", &arguments->descale_v, &descales->v);
}

int ft_run_read_kv_descales(struct ft_arg_descales *descales, const fatune_arguments *arguments) {
  if (arguments->descale_q.data)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.descale_q.data is %p; allowed: NULL, only K and V are in e4m3",
                   (const void *)arguments->descale_q.data);
  return ft_run_read_descales(descales, arguments);
}

int ft_run_read_no_descales(const fatune_arguments *arguments) {
  const fatune_descale *const given[] = {&arguments->descale_q, &arguments->descale_k,
                                         &arguments->descale_v};
  for (int i = 0; i < 3; i++)
    if (given[i]->data)
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.descale_%c.data is %p; allowed: NULL, the request's dtype is not "
                     "e4m3",
                     "qkv"[i], (const void *)given[i] -> data);
  return FT_OK;
}

/* ---- block mask ---- */

static int check_mask(const struct ft_request *request, const struct ft_run *run,
                      const struct fatune_mask *mask) {
  if (mask->score != 0 && mask->score != request->score)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments.mask is made by score %012llx; allowed: by the plan's, %012llx, or of "
        "a bitmap",
        (unsigned long long)mask->score, (unsigned long long)request->score);
  if (mask->rows != request->mask_rows || mask->cols != request->mask_cols)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask has blocks of %dx%d; the plan's are %dx%d",
                   mask->rows, mask->cols, request->mask_rows, request->mask_cols);
  if (mask->seqlen_q != run->nq || mask->seqlen_k != run->nk)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.mask is for lengths %lldx%lld; the run's are %lldx%lld",
                   (long long)mask->seqlen_q, (long long)mask->seqlen_k, (long long)run->nq,
                   (long long)run->nk);
  if (mask->batch != 1 && mask->batch != run->batch)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask is for a batch of %lld; allowed: 1, or %lld",
                   (long long)mask->batch, (long long)run->batch);
  if (mask->heads != 1 && mask->heads != run->heads_q)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask is for %d query heads; allowed: 1, or %d",
                   mask->heads, run->heads_q);
  return FT_OK;
}

static int check_mask_argument(const struct ft_run *run, const struct ft_request *request,
                               const struct fatune_mask *mask) {
  if (request->mask_rows == 0 && !mask) return FT_OK;
  if (request->mask_rows == 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.mask is %p; allowed: NULL, the plan's request has none",
                   (const void *)mask);
  if (!mask)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask is NULL; the plan's request has a mask of %dx%d",
                   request->mask_rows, request->mask_cols);
  return check_mask(request, run, mask);
}

/* of_head: the number of lists of one head. */
static struct ft_arg_mask_lists lists_of(const struct fatune_mask *mask, cu_address lists,
                                         cu_address blocks, int64_t of_head) {
  return (struct ft_arg_mask_lists){.lists = lists,
                                    .blocks = blocks,
                                    .batch_lists = mask->batch == 1 ? 0 : mask->heads * of_head,
                                    .head_lists = mask->heads == 1 ? 0 : of_head};
}

int ft_run_read_visibility(const struct ft_run *run, const struct ft_request *request,
                           const struct fatune_mask *mask, struct ft_arg_visibility *visibility) {
  FT_TRY(check_mask_argument(run, request, mask));
  visibility->first_diagonal = (int32_t)run->visibility.first_diagonal;
  visibility->last_diagonal = (int32_t)run->visibility.last_diagonal;
  if (!mask) return FT_OK;
  visibility->rows = lists_of(mask, mask->lists, mask->blocks, mask->row_blocks);
  visibility->columns = lists_of(mask, mask->column_lists, mask->column_blocks, mask->col_blocks);
  return FT_OK;
}

/* ---- visibility ---- */

/* Without a window its sides are -1, or 0 as in a struct of zeros. */
static int check_window(const struct ft_request *request, const char *side, int64_t keys) {
  const bool has = request->window != FT_WINDOW_NONE;
  if (keys == -1 || (has && keys >= 0 && keys <= INT32_MAX) || (!has && keys == 0)) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "arguments.window_%s is %lld; allowed: -1%s", side, (long long)keys,
                 has ? ", or 0 .. 2^31 - 1" : ", the plan's request has no window");
}

/* Kernels count keys from a query's own, also of the rows beyond the last one in its tile. */
static int check_lengths_with_window(const struct ft_run *run, const struct ft_request *request) {
  enum { TOGETHER_MOST = INT32_MAX - 1023 };
  if (request->window == FT_WINDOW_NONE || run->nq + run->nk <= TOGETHER_MOST) return FT_OK;
  return ft_fail(
      FT_E_ARGUMENT,
      "arguments.seqlen_q and seqlen_k are %lld and %lld; allowed with a window: at most "
      "2^31 - 1024 together",
      (long long)run->nq, (long long)run->nk);
}

/* With dropout a draw of 64 keys and 32 queries begins where the part does. */
static int check_origin(const struct ft_run *run, const struct ft_request *request,
                        const fatune_origin *origin) {
  enum { MULTIPLE = 64 };
  const struct {
    const char *name;
    int64_t value;
    bool place;
  } fields[] = {{"batch", origin->batch, false},
                {"head", origin->head, false},
                {"heads", origin->heads, false},
                {"query", origin->query, true},
                {"key", origin->key, true}};
  for (size_t n = 0; n < sizeof fields / sizeof *fields; n++) {
    const int64_t value = fields[n].value;
    const bool divides = !fields[n].place || !request->dropout || value % MULTIPLE == 0;
    const bool none = fields[n].place && run->ragged;
    if (value >= 0 && value <= (none ? 0 : INT32_MAX) && divides) continue;
    return ft_fail(FT_E_ARGUMENT, "arguments.origin.%s is %lld; allowed: %s", fields[n].name,
                   (long long)value,
                   none      ? "0, the plan's request is ragged"
                   : divides ? "0 .. 2^31 - 1"
                             : "multiples of 64, the plan's request has dropout");
  }
  return FT_OK;
}

/* What is counted from the first query and key of the larger problem, counted from the run's. */
static void move_diagonals(struct ft_diagonals *seen, const fatune_origin *origin) {
  const int64_t by = origin->query - origin->key;
  if (seen->first != -FT_NO_END) seen->first += by;
  if (seen->last != FT_NO_END) seen->last += by;
}

static int read_visibility(struct ft_run *run, const struct ft_request *request,
                           const fatune_arguments *arguments) {
  struct ft_request of_run = *request;
  FT_TRY(check_window(request, "left", arguments->window_left));
  FT_TRY(check_window(request, "right", arguments->window_right));
  FT_TRY(check_lengths_with_window(run, request));
  of_run.seqlen_q = run->nq;
  of_run.seqlen_k = run->nk;
  of_run.window_left = arguments->window_left;
  of_run.window_right = arguments->window_right;
  FT_TRY(check_origin(run, request, &arguments->origin));
  run->alignments = ft_alignments_of(&of_run);
  move_diagonals(&run->alignments.top_left, &arguments->origin);
  run->visibility = ft_visibility_in(&run->alignments, of_run.seqlen_q, of_run.seqlen_k);
  return FT_OK;
}

/* ---- all of a run ---- */

int ft_arguments_read(const fatune_arguments **arguments, fatune_arguments *room,
                      const fatune_arguments *given) {
  static const fatune_arguments initial = FATUNE_ARGUMENTS_INIT;
  static const struct ft_sized_struct form =
      FT_SIZED_STRUCT("arguments", fatune_arguments, dlse, &initial);
  const void *whole;
  if (!given) return ft_fail(FT_E_ARGUMENT, "arguments is NULL");
  *arguments = given;
  if (given->size == sizeof *given) return FT_OK;
  FT_TRY(ft_sized_read(&form, given, room, &whole));
  *arguments = whole;
  return FT_OK;
}

/* The lengths are there exactly where the request is ragged; what is used need not be. Of K and V
 * in pages what is used is all that there is. */
static int check_lengths(const struct ft_run *run, const fatune_arguments *arguments) {
  enum { NO, MAYBE, YES };
  const bool ragged = run->ragged, paged = run->page > 0;
  const struct {
    const char *name;
    const int32_t *data;
    int wanted;
  } lengths[] = {
      {"cu_seqlens_q", arguments->cu_seqlens_q, ragged ? YES : NO},
      {"cu_seqlens_k", arguments->cu_seqlens_k, ragged && !paged ? YES : NO},
      {"seqused_q", arguments->seqused_q, ragged ? MAYBE : NO},
      {"seqused_k", arguments->seqused_k,
       paged    ? YES
       : ragged ? MAYBE
                : NO},
  };
  for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
    if (lengths[n].data ? lengths[n].wanted == NO : lengths[n].wanted == YES)
      return ft_fail(FT_E_ARGUMENT, "arguments.%s is %p; allowed: %s, the plan's request %s%s",
                     lengths[n].name, (const void *)lengths[n].data,
                     lengths[n].wanted == NO ? "NULL" : "a device address",
                     ragged ? "is ragged" : "is not ragged", paged ? " and has pages" : "");
    if ((uintptr_t)lengths[n].data % sizeof(int32_t) != 0)
      return ft_fail(FT_E_ARGUMENT, "arguments.%s is %p; allowed: a multiple of 4", lengths[n].name,
                     (const void *)lengths[n].data);
  }
  return FT_OK;
}

int ft_run_read(struct ft_run *run, const struct ft_request *request,
                const fatune_arguments *arguments) {
  memset(run, 0, sizeof *run);
  if (arguments->spare_multiprocessors < 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.spare_multiprocessors is %d; allowed: 0 or more",
                   arguments->spare_multiprocessors);
  FT_TRY(read_extents(run, request, arguments));
  FT_TRY(check_lengths(run, arguments));
  FT_TRY(read_visibility(run, request, arguments));
  FT_TRY(read_scale(run, request, arguments->scale));
  return read_dropout(run, request, arguments);
}
