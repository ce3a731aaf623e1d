/* launch.c: the arguments of one run, checked and turned into what the kernels read.
 * in -> out: plan + fatune_arguments -> struct ft_forward_params and grid -> launch; of a backward
 * plan in launch_backward.c.
 * This is the hot path: no allocation, no lock, no call into the driver but the launches and what
 * tensor_maps.c has encoded. */
#include "generator/families/mma_backward.h"
#include "generator/families/wgmma_forward.h"
#include "runtime/launch.h"

#include <string.h>

#include "generator/schedule.h"
#include "generator/status.h"
#include "runtime/deal.h"
#include "runtime/launch_backward.h"
#include "runtime/launch_checks.h"
#include "runtime/launch_tensors.h"
#include "runtime/mask.h"
#include "generator/arguments.h"

/* ---- the forward ---- */

static int read_tensors(struct ft_forward_params *params, const struct ft_request *request,
                        const struct ft_run *run, const fatune_arguments *arguments) {
  const int64_t batch = run->batch, nq = run->nq, nk = run->nk;
  const int hq = run->heads_q, hkv = run->heads_kv;
  const int d = request->head_dim, dv = request->head_dim_v;
  const struct ft_view q = {"q", &arguments->q, batch, nq, hq, d, false};
  const struct ft_view k = {"k", &arguments->k, batch, nk, hkv, d, false};
  const struct ft_view v = {"v", &arguments->v, batch, nk, hkv, dv, false};
  const struct ft_view o = {"o", &arguments->o, batch, nq, hq, dv, true};
  FT_TRY(ft_view_read(&q, &params->q.data, &params->q.stride));
  FT_TRY(ft_view_read(&k, &params->k.data, &params->k.stride));
  FT_TRY(ft_view_read(&v, &params->v.data, &params->v.stride));
  FT_TRY(ft_view_read(&o, &params->o.data, &params->o.stride));
  if (params->o.data == params->q.data || params->o.data == params->k.data ||
      params->o.data == params->v.data)
    return ft_fail(FT_E_ARGUMENT, "arguments.o.data is that of an input; o must not share memory");

  params->lse = (uintptr_t)arguments->lse;
  if (params->lse % sizeof(float) != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is %p; allowed: a multiple of 4, or NULL",
                   (const void *)arguments->lse);
  if (params->lse == params->o.data)
    return ft_fail(FT_E_ARGUMENT, "arguments.lse is arguments.o.data; they must not share memory");
  return FT_OK;
}

static int read_mask(struct ft_forward_params *params, const struct ft_request *request,
                     const struct ft_run *run, const struct fatune_mask *mask) {
  FT_TRY(ft_run_check_mask(run, request, mask));
  if (!mask) return FT_OK;
  params->visibility.rows.lists = mask->lists;
  params->visibility.rows.blocks = mask->blocks;
  ft_mask_strides(mask, mask->row_blocks, &params->visibility.rows.batch_lists,
                  &params->visibility.rows.head_lists);
  return FT_OK;
}

/* Blocks of wgmma kernels are persistent. A cluster takes as many work tiles at once as it has
 * blocks, and none is without work. */
static int64_t resident_blocks(const struct ft_forward_params *params, enum ft_schedule schedule,
                               const struct ft_config *config, const struct ft_arch *arch) {
  const int64_t cluster = 1 + ft_wgmma_forward_knobs(config)->multicast;
  const int64_t q_tiles = params->schedule.q_tiles, resident = arch->sm_count / cluster;
  const int64_t heads = (int64_t)params->sequence.batch * params->sequence.heads_q;
  const int64_t paired =
      schedule == FT_SCHEDULE_BALANCED ? heads - params->schedule.remainder_heads : 0;
  const int64_t shares =
      (q_tiles + 1) / 2 * paired + (q_tiles + cluster - 1) / cluster * (heads - paired);
  return cluster * (shares < resident ? shares : resident);
}

/* How many batch_heads even the shares out: of the numbers whose keys and values fill a quarter to
 * three quarters of L2, the one that makes shares most even. Under a mask tiles are as long as its
 * blocks are many. */
static int64_t remainder_heads(const struct ft_forward_params *params, int64_t kv_bytes,
                               const struct ft_visibility *visibility,
                               const struct ft_request *request, const struct ft_config *config,
                               const struct ft_arch *arch) {
  const int64_t pairs = (int64_t)params->sequence.batch * params->sequence.heads_q,
                group = params->sequence.group;
  if (request->mask_rows > 0) return ft_run_section(request, arch, kv_bytes, group, pairs);
  const struct ft_deal deal = {
      .tiles = params->schedule.q_tiles,
      .pairs = pairs,
      .blocks = arch->sm_count,
      .rows = ft_config_block_m(config),
      .keys = ft_config_block_n(config),
      .visibility = *visibility,
      .pack_bits = params->sequence.pack_bits,
      .least = ft_run_section(request, arch, 2 * kv_bytes, group, pairs),
      .most = ft_run_section(request, arch, kv_bytes - kv_bytes / 3, group, pairs),
  };
  return ft_deal_pairs(&deal);
}

static int read_geometry(struct ft_launch *launch, const struct ft_request *request,
                         const struct ft_config *config, const struct ft_arch *arch,
                         const struct ft_run *run) {
  struct ft_forward_params *const params = &launch->tiled.rest;
  const int group = run->heads_q / run->heads_kv;
  const int packed = ft_packed_heads(config, group, run->nq);
  const int block_m = ft_config_block_m(config);
  const int64_t q_tiles = ft_run_tiles(run->nq * packed, request->mask_rows, block_m);
  const int64_t pairs = run->batch * (run->heads_q / packed); /* < 2^62 */
  int64_t blocks;
  if (__builtin_mul_overflow(q_tiles, pairs, &blocks) || blocks > INT32_MAX)
    return ft_fail(
        FT_E_ARGUMENT,
        "arguments: batch %lld x heads_q %d x %lld tiles of %d rows (seqlen_q %lld) is more "
        "than the 2^31 - 1 blocks of one launch",
        (long long)run->batch, run->heads_q, (long long)q_tiles, block_m, (long long)run->nq);
  params->sequence.pack_bits = __builtin_ctz((unsigned)packed);
  params->sequence.nq = (int32_t)run->nq * packed;
  params->sequence.nk = (int32_t)run->nk;
  params->sequence.batch = (int32_t)run->batch;
  params->sequence.heads_q = run->heads_q / packed;
  params->sequence.heads_kv = run->heads_kv;
  params->sequence.group = group / packed;
  params->schedule.q_tiles = (int32_t)q_tiles;
  params->visibility.first_diagonal = (int32_t)run->visibility.first_diagonal;
  params->visibility.last_diagonal = (int32_t)run->visibility.last_diagonal;
  const int64_t kv_bytes =
      run->nk * (request->head_dim + request->head_dim_v) * ft_dtype_bytes(request->dtype);
  const enum ft_schedule schedule = ft_schedule_of(request, config);
  params->schedule.l2_section_heads =
      (int32_t)ft_run_section(request, arch, kv_bytes, params->sequence.group, pairs);
  if (schedule == FT_SCHEDULE_BALANCED)
    params->schedule.remainder_heads =
        (int32_t)remainder_heads(params, kv_bytes, &run->visibility, request, config, arch);
  launch->grid = (unsigned)(config->family == &ft_wgmma_forward_family
                                ? resident_blocks(params, schedule, config, arch)
                                : blocks);
  return FT_OK;
}

static void read_numbers(struct ft_forward_params *params, const struct ft_run *run) {
  params->softmax.scale = run->scale;
  params->softmax.scale_log2 = run->scale_log2;
  params->dropout.seed = run->seed;
  params->dropout.offset = run->offset;
  params->dropout.seed_address = run->seed_address;
  params->dropout.offset_address = run->offset_address;
  params->dropout.threshold = run->dropout_threshold;
  params->dropout.rescale = run->dropout_rescale;
}

int ft_launch_prepare(struct ft_launch *launch, const struct ft_request *request,
                      const struct ft_config *config, const struct ft_arch *arch,
                      const fatune_arguments *given) {
  fatune_arguments room;
  const fatune_arguments *arguments;
  FT_TRY(ft_arguments_read(&arguments, &room, given));
  memset(launch, 0, sizeof *launch);
  launch->pass = request->pass;
  launch->family = config->family;
  launch->head_dim = request->head_dim;
  launch->head_dim_v = request->head_dim_v;
  launch->dtype = request->dtype;
  if (request->pass == FT_BACKWARD)
    return ft_launch_prepare_backward(launch, request, config, arch, arguments);

  struct ft_run run;
  struct ft_forward_params *const params = &launch->tiled.rest;
  FT_TRY(ft_run_read(&run, request, arguments));
  FT_TRY(read_geometry(launch, request, config, arch, &run));
  FT_TRY(read_tensors(params, request, &run, arguments));
  read_numbers(params, &run);
  return read_mask(params, request, &run, arguments->mask);
}

/* ---- launching ---- */

static int refused(const struct ft_driver *driver, cu_result result) {
  enum { INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
  const int status = ft_driver_status(driver, result, "cuLaunchKernel");
  if (result != INVALID_CONTEXT && result != INVALID_HANDLE) return status;
  return ft_fail_within(status, "is the session's context current in this thread, and the stream "
                                "one of that context?");
}

/* One kernel of the launch. */
struct one {
  cu_function function;
  unsigned grid;
  int threads, smem_bytes;
};

static int enqueue_one(const struct ft_launch *launch, enum ft_step step, const struct one *one,
                       const struct ft_driver *driver, cu_stream stream) {
  /* The driver copies the struct during the call, and only reads it. */
  const void *argument = &launch->tiled.rest;
  if (launch->family == &ft_wgmma_forward_family) argument = &launch->tiled;
  if (launch->pass == FT_BACKWARD) argument = &launch->backward;
  void *kernel_arguments[] = {(void *)(uintptr_t)argument};
  if (driver->emulated) ft_launch_describe(launch, step);
  const cu_result result =
      driver->launch(one->function, one->grid, 1, 1, (unsigned)one->threads, 1, 1,
                     (unsigned)one->smem_bytes, stream, kernel_arguments, NULL);
  return result ? refused(driver, result) : FT_OK;
}

int ft_launch_enqueue(const struct ft_launch *launch, const struct ft_driver *driver,
                      const struct ft_module *module, const struct ft_budget *budget,
                      cu_stream stream) {
  const struct one main = {module->function, launch->grid, budget->threads, budget->smem_bytes};
  if (launch->pass == FT_FORWARD) return enqueue_one(launch, FT_STEP_MAIN, &main, driver, stream);
  const struct one prepare = {module->prepare, launch->tiles_grid, budget->threads, 0};
  const struct ft_mma_backward_budget *const own = ft_mma_backward_budget(budget);
  const struct one convert = {module->convert, launch->tiles_grid, own->dq_threads, own->dq_smem};
  FT_TRY(enqueue_one(launch, FT_STEP_PREPARE, &prepare, driver, stream));
  FT_TRY(enqueue_one(launch, FT_STEP_MAIN, &main, driver, stream));
  return enqueue_one(launch, FT_STEP_CONVERT, &convert, driver, stream);
}
