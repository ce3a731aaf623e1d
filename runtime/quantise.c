/* quantise.c: a tensor as e4m3 with descales.
 * in -> out: session + fatune_quantise_arguments -> struct ft_quantise_params -> kernels on a
 * stream. */
#include <string.h>

#include "generator/arguments.h"
#include "generator/families/quantise.h"
#include "generator/key_parts.h"
#include "generator/status.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_tensors.h"
#include "runtime/own_kernels.h"
#include "runtime/public.h"
#include "runtime/session.h"
#include "runtime/sized_struct.h"

enum { ALL_ROWS = 31 }; /* 2^31 rows: all that there may be */

/* ---- the arguments ---- */

static int read_request(struct ft_request *request, const fatune_quantise_arguments *arguments) {
  enum { MULTIPLE = 16, DIM_MOST = 256 };
  const int dim = arguments->head_dim;
  if (dim < MULTIPLE || dim > DIM_MOST || dim % MULTIPLE != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.head_dim is %d; allowed: multiples of 16 from 16 to 256", dim);
  fatune_request public = FATUNE_REQUEST_INIT;
  public.dtype = arguments->dtype;
  public.head_dim = arguments->head_dim;
  public.batch = arguments->batch;
  public.heads_q = arguments->heads;
  public.seqlen_q = arguments->seqlen;
  FT_TRY(ft_request_from_public(request, &public));
  if (ft_dtype_bytes(request->dtype) != sizeof(uint16_t))
    return ft_fail(FT_E_ARGUMENT, "arguments.dtype is %s; allowed: fp16, bf16",
                   ft_dtype_name(request->dtype));
  return FT_OK;
}

static int read_arguments(struct ft_quantise_params *params,
                          const fatune_quantise_arguments *arguments, struct ft_request *request) {
  struct ft_arg_tensor out;
  memset(params, 0, sizeof *params);
  FT_TRY(read_request(request, arguments));
  const int64_t batch = request->batch, rows = request->seqlen_q;
  const int heads = request->heads_q, dim = request->head_dim;
  const struct ft_view x = {"x", &arguments->x, batch, rows, heads, dim, false, sizeof(uint16_t)};
  const struct ft_view of_out = {"out", &arguments->out, batch, rows, heads, dim, true, 1};
  FT_TRY(ft_view_read(&x, &params->x));
  FT_TRY(ft_view_read(&of_out, &out));
  params->out = out.data;
  params->out_stride = out.stride;
  params->descale = (uintptr_t)arguments->descale;
  if (!params->descale || params->descale % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.descale is %p; allowed: a device address, a multiple of 4",
                   (void *)arguments->descale);
  if (params->out == params->x.data || params->descale == params->x.data ||
      params->descale == params->out)
    return ft_fail(FT_E_ARGUMENT, "arguments: x, out and descale must not share memory");
  if (arguments->rotate != 0 && arguments->rotate != 1)
    return ft_fail(FT_E_ARGUMENT, "arguments.rotate is %d; allowed: 0, 1", arguments->rotate);
  const int64_t of_block = arguments->descale_rows;
  if (of_block != 0 && of_block != 64 && of_block != 128)
    return ft_fail(FT_E_ARGUMENT, "arguments.descale_rows is %lld; allowed: 0, 64, 128",
                   (long long)of_block);
  params->block_bits = of_block == 0 ? ALL_ROWS : of_block == 64 ? 6 : 7;
  params->blocks = (int32_t)ft_descale_blocks((int)of_block, rows);
  params->batch = (int32_t)batch;
  params->heads = heads;
  params->rows = (int32_t)rows;
  params->rotated = arguments->rotate;
  params->seed = arguments->seed;
  return FT_OK;
}

/* Two rows of 64 columns that lie side by side are one of 128, with whose tiles a block of rotated
 * rows was 4 % faster on an H200. */
static void pair_rows(struct ft_quantise_params *params, struct ft_request *request,
                      const struct ft_arch *arch) {
  enum { COLUMNS = 64, MEASURED = 90 };
  struct ft_stride *const of_x = &params->x.stride, *const of_out = &params->out_stride;
  if (arch->sm != MEASURED || !params->rotated || params->block_bits == ALL_ROWS ||
      request->head_dim != COLUMNS || params->rows % 2 != 0 || of_x->row != COLUMNS ||
      of_out->row != COLUMNS)
    return;
  request->head_dim *= 2;
  of_x->row *= 2;
  of_out->row *= 2;
  params->rows /= 2;
  params->block_bits--;
}

/* ---- the launches ---- */

/* Blocks take tasks in turn, a multiple of the GPU's multiprocessors at most. */
static int blocks_of(const struct ft_quantise_params *params, int rows, int64_t most,
                     unsigned *blocks) {
  enum { TASKS_MOST = INT32_MAX / 2 };
  const int64_t of_head = ((int64_t)params->rows + rows - 1) / rows;
  int64_t tasks;
  if (__builtin_mul_overflow((int64_t)params->batch * params->heads, of_head, &tasks) ||
      tasks > TASKS_MOST)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments: batch %d x heads %d x seqlen %d rows are more than the 2^30 - 1 tasks of %d "
        "rows that one launch takes",
        params->batch, params->heads, params->rows, rows);
  *blocks = (unsigned)(tasks < most ? tasks : most);
  return FT_OK;
}

static void tell_emulator(const struct ft_quantise_params *params,
                          const struct ft_request *request) {
  const struct ft_arg_sequence sequence = {
      .batch = params->batch, .nq = params->rows, .heads_q = params->heads, .heads_kv = 1, .nk = 1};
  const struct ft_arg_tensor out = {params->out, params->out_stride};
  struct ft_launch_tensors all;
  ft_launch_tensors_begin(&all, request->dtype, &sequence);
  ft_add_tensor(&all, "x", &params->x, FT_OF_QUERIES, request->head_dim);
  struct ft_emulated_tensor *const bytes =
      ft_add_tensor(&all, "out", &out, FT_OF_QUERIES, request->head_dim);
  bytes->element_bytes = 1;
  bytes->writable = true;
  ft_add_work(&all, "the descales", params->descale, (int64_t)params->batch * params->heads,
              params->blocks)
      ->writable = true;
  ft_emulator_expect(all.tensors, all.count);
}

/* Clusters that take one head after the other. */
static int launch_heads(const struct ft_quantise_params *params, const struct ft_request *request,
                        const struct ft_own_kernel *kernel, const struct ft_arch *arch,
                        const struct ft_driver *driver, void *stream) {
  enum { HEADS = 2, WARP = 32 };
  const struct ft_quantise_budget *const own = ft_quantise_budget(&kernel->source.budget);
  const struct ft_walks clusters = {.blocks_per_sm = 1, .cluster = params->cluster};
  const int64_t heads = (int64_t)params->batch * params->heads,
                at_once = ft_clusters_at_once(&clusters, arch);
  const unsigned cluster = (unsigned)params->cluster;
  const struct cu_launch_config config = {
      .grid = {(unsigned)(heads < at_once ? heads : at_once) * cluster, 1, 1},
      .block = {(unsigned)(WARP * own->head_warps), 1, 1},
      .smem = (unsigned)own->head_smem_bytes,
      .stream = stream};
  if (driver->emulated) tell_emulator(params, request);
  return ft_own_kernel_launch_clusters(kernel, HEADS, cluster, &config, params, driver);
}

/* One kernel, or two where a descale is of a head and clusters cannot have it: the one before finds
 * the descales. */
static int launch(struct ft_quantise_params *params, const struct ft_request *request,
                  const struct ft_own_kernel *kernel, const struct ft_arch *arch,
                  const struct ft_driver *driver, void *stream) {
  /* 2^-40: the descale of zeros, whose product with another is above 0. */
  enum { LEAST = 0x2B800000 };
  const struct ft_budget *const budget = &kernel->source.budget;
  const struct ft_quantise_budget *const own = ft_quantise_budget(budget);
  const int of_sm[] = {own->finders, own->blocks}, smem[] = {0, budget->smem_bytes};
  const bool of_heads = params->block_bits == ALL_ROWS;
  if (of_heads)
    params->cluster = ft_quantise_cluster(own, params->rows, (int64_t)params->batch * params->heads,
                                          params->rotated, arch);
  if (params->cluster > 0) return launch_heads(params, request, kernel, arch, driver, stream);
  if (of_heads)
    FT_TRY(
        ft_driver_status(driver,
                         driver->set_words(params->descale, LEAST,
                                           (size_t)params->batch * (size_t)params->heads, stream),
                         "cuMemsetD32Async"));
  for (int n = of_heads ? 0 : 1; n < 2; n++) {
    unsigned blocks = 0;
    FT_TRY(blocks_of(params, own->rows, (int64_t)of_sm[n] * arch->sm_count, &blocks));
    if (driver->emulated) tell_emulator(params, request);
    FT_TRY(ft_own_kernel_launch(kernel, n, blocks, smem[n], params, driver, stream));
  }
  return FT_OK;
}

int fatune_quantise(fatune_session *session, const fatune_quantise_arguments *given, void *stream) {
  enum { WITH_E4M3 = 89 };
  static const fatune_quantise_arguments initial = FATUNE_QUANTISE_ARGUMENTS_INIT;
  static const struct ft_sized_struct form =
      FT_SIZED_STRUCT("arguments", fatune_quantise_arguments, seed, &initial);
  fatune_quantise_arguments room;
  const void *arguments;
  struct ft_quantise_params params;
  struct ft_request request;
  const struct ft_own_kernel *kernel;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!given) return ft_fail(FT_E_ARGUMENT, "arguments is NULL");
  FT_TRY(ft_session_needs_device(session));
  FT_TRY(ft_sized_read(&form, given, &room, &arguments));
  FT_TRY(read_arguments(&params, arguments, &request));
  const struct ft_arch *const arch = &session->device.arch;
  if (arch->sm < WITH_E4M3)
    return ft_fail(FT_E_UNSUPPORTED, "e4m3 needs sm_89 or later, and %s is sm_%d", arch->name,
                   arch->sm);
  pair_rows(&params, &request, arch);
  FT_TRY(ft_own_kernel(&kernel, session, &request, &ft_quantise_family,
                       "quantise once before the capture"));
  return launch(&params, &request, kernel, arch, &session->driver, stream);
}
