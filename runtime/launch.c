/* launch.c: the arguments of one run, checked and turned into what the kernel reads.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params and grid -> launch.
 * This is the hot path: no allocation, no lock, no call into the driver but the launch. */
#include <math.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"

/* The lengths of a run, the plan's where the caller gave 0. */
struct extents {
  int64_t batch, nq, nk;
  int heads_q, heads_kv;
};

/* One tensor of the run as it is to be checked. */
struct view {
  const char *name;
  const fatune_tensor *tensor;
  int64_t batch, rows;
  int heads, dim;
  bool output;
};

static int check_extent(const char *name, int64_t value) {
  if (value >= 1 && value <= INT32_MAX) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "arguments.%s is %lld; allowed: 1 .. 2^31 - 1, or 0 for the plan's",
                 name, (long long)value);
}

static int read_extents(struct extents *extents, const struct ft_request *request,
                        const fatune_arguments *arguments) {
  extents->batch = arguments->batch ? arguments->batch : request->batch;
  extents->nq = arguments->seqlen_q ? arguments->seqlen_q : request->seqlen_q;
  extents->nk = arguments->seqlen_k ? arguments->seqlen_k : request->seqlen_k;
  extents->heads_q = arguments->heads_q ? arguments->heads_q : request->heads_q;
  extents->heads_kv = arguments->heads_kv ? arguments->heads_kv : request->heads_kv;
  FT_TRY(check_extent("batch", extents->batch));
  FT_TRY(check_extent("seqlen_q", extents->nq));
  FT_TRY(check_extent("seqlen_k", extents->nk));
  FT_TRY(check_extent("heads_q", extents->heads_q));
  FT_TRY(check_extent("heads_kv", extents->heads_kv));
  if (extents->heads_q % extents->heads_kv != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.heads_q is %d; allowed: a multiple of heads_kv, %d",
                   extents->heads_q, extents->heads_kv);
  return FT_OK;
}

/* ---- tensors ---- */

static int check_stride(const struct view *view, const char *which, int64_t stride,
                        int64_t extent) {
  if (extent == 1) return FT_OK; /* never used */
  if (stride < 0 || stride % 8 != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.%s.stride_%s is %lld; allowed: a multiple of 8 elements, >= 0",
                   view->name, which, (long long)stride);
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

/* The last byte must be within 63 bits of the first and within the address space. */
static int check_span(const struct view *view) {
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
  overflow |= __builtin_mul_overflow(elements, (int64_t)2, &bytes);
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
static int check_no_overlap(const struct view *view) {
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

static int read_tensor(const struct view *view, uint64_t *address, struct ft_stride *stride) {
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
  *address = (uintptr_t)t->data;
  /* PyTorch leaves anything as the stride of an extent of 1. */
  stride->batch = view->batch == 1 ? 0 : t->stride_batch;
  stride->row = view->rows == 1 ? 0 : t->stride_seq;
  stride->head = view->heads == 1 ? 0 : t->stride_head;
  return FT_OK;
}

static int read_tensors(struct ft_forward_params *params, const struct ft_request *request,
                        const struct extents *extents, const fatune_arguments *arguments) {
  const int64_t batch = extents->batch, nq = extents->nq, nk = extents->nk;
  const int hq = extents->heads_q, hkv = extents->heads_kv;
  const int d = request->head_dim, dv = request->head_dim_v;
  const struct view q = {"q", &arguments->q, batch, nq, hq, d, false};
  const struct view k = {"k", &arguments->k, batch, nk, hkv, d, false};
  const struct view v = {"v", &arguments->v, batch, nk, hkv, dv, false};
  const struct view o = {"o", &arguments->o, batch, nq, hq, dv, true};
  FT_TRY(read_tensor(&q, &params->q, &params->q_stride));
  FT_TRY(read_tensor(&k, &params->k, &params->k_stride));
  FT_TRY(read_tensor(&v, &params->v, &params->v_stride));
  FT_TRY(read_tensor(&o, &params->o, &params->o_stride));
  if (params->o == params->q || params->o == params->k || params->o == params->v)
    return ft_fail(FT_E_ARGUMENT, "arguments.o.data is that of an input; o must not share memory");

  params->lse = (uintptr_t)arguments->lse;
  if (params->lse % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is %p; allowed: a multiple of 4, or NULL",
                   (const void *)arguments->lse);
  if (params->lse == params->o)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is arguments.o.data; they must not share memory");
  return FT_OK;
}

/* ---- numbers ---- */

static int read_scale(struct ft_forward_params *params, const struct ft_request *request,
                      float scale) {
  static const float log2_e = 1.44269504088896340736f;
  if (scale == 0) scale = (float)(1 / sqrt(request->head_dim));
  /* Compared so that NaN fails; the product is what the kernel uses. */
  if (!(scale > 0) || !isfinite(scale * log2_e))
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.scale is %g; allowed: > 0 and finite, or 0 for 1 / sqrt(head_dim)",
                   (double)scale);
  params->scale = scale;
  params->scale_log2 = scale * log2_e;
  return FT_OK;
}

static int read_dropout(struct ft_forward_params *params, const struct ft_request *request,
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
  params->dropout_threshold = (uint32_t)threshold;
  params->dropout_rescale = threshold == ONE ? 0 : (float)((double)ONE / (double)(ONE - threshold));

  params->seed = arguments->seed;
  params->offset = arguments->offset;
  params->seed_address = (uintptr_t)arguments->seed_device;
  params->offset_address = (uintptr_t)arguments->offset_device;
  if (params->seed_address % 8 != 0 || params->offset_address % 8 != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.%s is %p; allowed: a multiple of 8, or NULL",
                   params->seed_address % 8 ? "seed_device" : "offset_device",
                   params->seed_address % 8 ? (const void *)arguments->seed_device
                                            : (const void *)arguments->offset_device);
  return FT_OK;
}

/* ---- mask ---- */

static int check_mask(const struct ft_request *request, const struct extents *extents,
                      const struct fatune_mask *mask) {
  if (mask->rows != request->mask_rows || mask->cols != request->mask_cols)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask has blocks of %dx%d; the plan's are %dx%d",
                   mask->rows, mask->cols, request->mask_rows, request->mask_cols);
  if (mask->seqlen_q != extents->nq || mask->seqlen_k != extents->nk)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.mask is for lengths %lldx%lld; the run's are %lldx%lld",
                   (long long)mask->seqlen_q, (long long)mask->seqlen_k, (long long)extents->nq,
                   (long long)extents->nk);
  if (mask->batch != 1 && mask->batch != extents->batch)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask is for a batch of %lld; allowed: 1, or %lld",
                   (long long)mask->batch, (long long)extents->batch);
  if (mask->heads != 1 && mask->heads != extents->heads_q)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask is for %d query heads; allowed: 1, or %d",
                   mask->heads, extents->heads_q);
  return FT_OK;
}

static int read_mask(struct ft_forward_params *params, const struct ft_request *request,
                     const struct extents *extents, const struct fatune_mask *mask) {
  if (request->mask_rows == 0) {
    if (!mask) return FT_OK;
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.mask is %p; allowed: NULL, the plan's request has none",
                   (const void *)mask);
  }
  if (!mask)
    return ft_fail(FT_E_ARGUMENT, "arguments.mask is NULL; the plan's request has a mask of %dx%d",
                   request->mask_rows, request->mask_cols);
  FT_TRY(check_mask(request, extents, mask));
  params->mask_lists = mask->lists;
  params->mask_blocks = mask->blocks;
  params->mask_batch_lists = mask->batch == 1 ? 0 : mask->heads * mask->row_blocks;
  params->mask_head_lists = mask->heads == 1 ? 0 : mask->row_blocks;
  return FT_OK;
}

/* ---- the order of the tiles ---- */

/* Under causal or a mask the tiles of a section run longest first, over as many heads as keep K and
 * V in half of L2; else all tiles are alike and one head after the other reuses L2 best. */
static int64_t section_of(const struct ft_request *request, const struct ft_arch *arch,
                          const struct extents *extents) {
  if (request->causal == FT_CAUSAL_NONE && request->mask_rows == 0) return 1;
  const int64_t group = extents->heads_q / extents->heads_kv;
  const int64_t pairs = extents->batch * extents->heads_q;
  const int64_t kv_bytes =
      extents->nk * (request->head_dim + request->head_dim_v) * ft_dtype_bytes(request->dtype);
  int64_t section = arch->l2_bytes / 2 / kv_bytes * group;
  if (section < group) section = group;
  return section < pairs ? section : pairs;
}

/* Tiles of one head. Under a mask every row block has all its tiles, the last one some beyond nq.
 */
static int64_t count_tiles(const struct ft_request *request, const struct ft_config *config,
                           int64_t nq) {
  if (request->mask_rows == 0) return (nq + config->block_m - 1) / config->block_m;
  const int64_t row_blocks = (nq + request->mask_rows - 1) / request->mask_rows;
  return row_blocks * (request->mask_rows / config->block_m);
}

/* Blocks of wgmma kernels stay (templates/parts/keys.cu.in) and are dealt out tiles, of a cluster
 * as many at once as it has blocks; or they take two at a time, one where there are no more tiles
 * than places. None may be without work. */
static int64_t resident_blocks(int64_t q_tiles, int64_t pairs, const struct ft_request *request,
                               const struct ft_config *config, const struct ft_arch *arch) {
  const int64_t resident = (int64_t)arch->sm_count * config->ctas_per_sm,
                cluster = 1 + config->multicast;
  const bool alike = request->causal == FT_CAUSAL_NONE && request->mask_rows == 0;
  const bool in_twos = !alike && !config->longest_first && q_tiles * pairs > resident;
  const int64_t tiles_at_once = in_twos ? 2 : cluster;
  const int64_t turns = (q_tiles + tiles_at_once - 1) / tiles_at_once * pairs;
  return cluster * (turns < resident / cluster ? turns : resident / cluster);
}

static int read_geometry(struct ft_launch *launch, const struct ft_request *request,
                         const struct ft_config *config, const struct ft_arch *arch,
                         const struct extents *extents) {
  struct ft_forward_params *const params = &launch->tiled.rest;
  const int64_t q_tiles = count_tiles(request, config, extents->nq);
  const int64_t pairs = extents->batch * extents->heads_q; /* < 2^62 */
  int64_t blocks;
  if (__builtin_mul_overflow(q_tiles, pairs, &blocks) || blocks > INT32_MAX)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments: batch %lld x heads_q %d x %lld tiles of %d rows (seqlen_q %lld) is more "
        "than the 2^31 - 1 blocks of one launch",
        (long long)extents->batch, extents->heads_q, (long long)q_tiles, config->block_m,
        (long long)extents->nq);
  params->nq = (int32_t)extents->nq;
  params->nk = (int32_t)extents->nk;
  params->batch = (int32_t)extents->batch;
  params->heads_q = extents->heads_q;
  params->group = extents->heads_q / extents->heads_kv;
  params->q_tiles = (int32_t)q_tiles;
  params->section_heads = (int32_t)section_of(request, arch, extents);
  switch (request->causal) {
  case FT_CAUSAL_NONE: params->causal_shift = params->nk; break; /* not read */
  case FT_CAUSAL_BOTTOM_RIGHT: params->causal_shift = params->nk - params->nq; break;
  case FT_CAUSAL_TOP_LEFT: params->causal_shift = 0; break;
  }
  launch->grid = (unsigned)(config->family == FT_FAMILY_WGMMA
                                ? resident_blocks(q_tiles, pairs, request, config, arch)
                                : blocks);
  return FT_OK;
}

int ft_launch_prepare(struct ft_launch *launch, const struct ft_request *request,
                      const struct ft_config *config, const struct ft_arch *arch,
                      const fatune_arguments *arguments) {
  if (!arguments) return ft_fail(FT_E_ARGUMENT, "arguments is NULL");
  FT_TRY(ft_check_size("arguments", arguments->size, sizeof *arguments));
  if (request->pass != FT_FORWARD)
    return ft_fail(FT_E_UNSUPPORTED, "the backward pass cannot be launched yet");

  struct extents extents;
  struct ft_forward_params *const params = &launch->tiled.rest;
  memset(launch, 0, sizeof *launch);
  launch->family = config->family;
  launch->head_dim = request->head_dim;
  launch->head_dim_v = request->head_dim_v;
  launch->dtype = request->dtype;
  FT_TRY(read_extents(&extents, request, arguments));
  FT_TRY(read_geometry(launch, request, config, arch, &extents));
  FT_TRY(read_tensors(params, request, &extents, arguments));
  FT_TRY(read_scale(params, request, arguments->scale));
  FT_TRY(read_dropout(params, request, arguments));
  return read_mask(params, request, &extents, arguments->mask);
}

int ft_launch_enqueue(const struct ft_launch *launch, const struct ft_driver *driver,
                      const struct ft_module *module, const struct ft_budget *budget,
                      cu_stream stream) {
  /* The driver copies the struct during the call, and only reads it. */
  const void *const argument = launch->family == FT_FAMILY_WGMMA
                                   ? (const void *)&launch->tiled
                                   : (const void *)&launch->tiled.rest;
  void *kernel_arguments[] = {(void *)(uintptr_t)argument};
  if (driver->emulated) ft_launch_describe(launch);
  const cu_result result =
      driver->launch(module->function, launch->grid, 1, 1, (unsigned)budget->threads, 1, 1,
                     (unsigned)budget->smem_bytes, stream, kernel_arguments, NULL);
  if (!result) return FT_OK;
  enum { INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
  const int status = ft_driver_status(driver, result, "cuLaunchKernel");
  if (result != INVALID_CONTEXT && result != INVALID_HANDLE) return status;
  return ft_fail_within(status, "is the session's context current in this thread, and the stream "
                                "one of that context?");
}
