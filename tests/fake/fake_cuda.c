/* fake_cuda.c: a libcuda.so.1 without a GPU, for tests.
 * in -> out: the driver calls fatune makes -> success, host memory as "device" memory, a record of
 * the last launch, or the failure a test asked for. Calls that give something back do so even when
 * told to fail, as the real ones do when they report an earlier launch's error. */
#include "tests/fake/fake.h"
#include "tests/fake/fake_core.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "runtime/driver.h"
#include "generator/arguments.h"

enum {
  INVALID_VALUE = 1,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NOT_FOUND = 500
};

enum { FUNCTIONS = 8, OF_PASSES = 3, CONVERT = 2, MERGE = 7 }; /* prepare, kernel, convert */

static struct fake_gpu gpu = {"NVIDIA H200", 90, 132, 1, 0, 0};
static struct fake_launch last_launch;
static const struct timespec *own_clock;
static _Thread_local int maps_made; /* since the last launch */
static _Atomic int function_settings[16];
static int primary_context, callers_context; /* their addresses serve as handles */
static _Thread_local cu_context stack[16];
static _Thread_local int depth;

#define EXPORT __attribute__((visibility("default")))

/* ---- controls ---- */

EXPORT fake_reset_function fake_cuda_reset;
EXPORT fake_calls_function fake_cuda_calls;
EXPORT fake_failed_function fake_cuda_failed;
EXPORT fake_live_function fake_cuda_live, fake_cuda_depth;
EXPORT fake_launch_function fake_cuda_last_launch;
EXPORT fake_gpu_function fake_cuda_gpu;
EXPORT fake_clock_function fake_cuda_clock;
EXPORT fake_function_set_function fake_cuda_function_setting;

void fake_cuda_reset(const char *failure) {
  fake_start_over(failure);
  memset(&last_launch, 0, sizeof last_launch);
  for (int i = 0; i < 16; i++) function_settings[i] = -1;
  depth = 0;
  own_clock = NULL;
  gpu = (struct fake_gpu){"NVIDIA H200", 90, 132, 1, 0, 0};
}

int fake_cuda_calls(const char *symbol) {
  return fake_count(symbol);
}

const char *fake_cuda_failed(void) {
  return fake.failed;
}

int fake_cuda_live(void) {
  return fake.live;
}

int fake_cuda_depth(void) {
  return depth;
}

const struct fake_launch *fake_cuda_last_launch(void) {
  return &last_launch;
}

void fake_cuda_gpu(const struct fake_gpu *wanted) {
  gpu = *wanted;
  depth = 0;
  if (gpu.current) stack[depth++] = (cu_context)&callers_context;
}

void fake_cuda_clock(const struct timespec *now) {
  own_clock = now;
}

int fake_cuda_function_setting(int attribute) {
  return function_settings[attribute];
}

/* ---- driver, devices ---- */

#define DEFINE(symbol, arguments)                                                                  \
  EXPORT cu_result symbol arguments;                                                               \
  cu_result symbol arguments

DEFINE(cuInit, (unsigned flags)) {
  FAKE_CALL("cuInit");
  return flags ? INVALID_VALUE : 0;
}

DEFINE(cuDriverGetVersion, (int *version)) {
  FAKE_CALL("cuDriverGetVersion");
  *version = 13000;
  return 0;
}

DEFINE(cuGetErrorName, (cu_result error, const char **name)) {
  FAKE_CALL("cuGetErrorName");
  *name = error == INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_FAKE";
  return 0;
}

DEFINE(cuGetErrorString, (cu_result error, const char **text)) {
  FAKE_CALL("cuGetErrorString");
  *text = error ? "a failure made for a test" : "no error";
  return 0;
}

DEFINE(cuDeviceGetCount, (int *count)) {
  FAKE_CALL("cuDeviceGetCount");
  *count = gpu.count;
  return 0;
}

DEFINE(cuDeviceGet, (cu_device * device, int ordinal)) {
  FAKE_CALL("cuDeviceGet");
  if (ordinal < 0 || ordinal >= gpu.count) return INVALID_DEVICE;
  *device = ordinal;
  return 0;
}

DEFINE(cuDeviceGetName, (char *name, int length, cu_device device)) {
  FAKE_CALL("cuDeviceGetName");
  (void)device;
  snprintf(name, (size_t)length, "%s", gpu.name);
  return 0;
}

DEFINE(cuDeviceGetUuid_v2, (unsigned char uuid[16], cu_device device)) {
  FAKE_CALL("cuDeviceGetUuid_v2");
  memset(uuid, device, 16);
  return 0;
}

DEFINE(cuDeviceGetAttribute, (int *value, int attribute, cu_device device)) {
  FAKE_CALL("cuDeviceGetAttribute");
  (void)device;
  switch (attribute) {
  case 13: *value = 1980000; break; /* kHz */
  case 16: *value = gpu.sm_count; break;
  case 36: *value = 3201000; break;
  case 37: *value = 6144; break;
  case 38: *value = 50 << 20; break;
  case 39: *value = 2048; break;
  case 75: *value = gpu.sm / 10; break;
  case 76: *value = gpu.sm % 10; break;
  case 81: *value = 228 << 10; break;
  case 82: *value = 65536; break;
  case 97: *value = 227 << 10; break;
  case 106: *value = 32; break;
  case 111: *value = 1024; break;
  default: return INVALID_VALUE;
  }
  return 0;
}

DEFINE(cuDeviceTotalMem_v2, (size_t * bytes, cu_device device)) {
  FAKE_CALL("cuDeviceTotalMem_v2");
  (void)device;
  *bytes = (size_t)139 << 30;
  return 0;
}

/* ---- contexts ---- */

DEFINE(cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device)) {
  FAKE_CALL("cuDevicePrimaryCtxRetain");
  (void)device;
  *context = (cu_context)&primary_context;
  fake_count_live(1);
  return 0;
}

DEFINE(cuDevicePrimaryCtxRelease_v2, (cu_device device)) {
  (void)device;
  fake_count_live(-1);
  return fake_call("cuDevicePrimaryCtxRelease_v2");
}

DEFINE(cuCtxGetCurrent, (cu_context * context)) {
  FAKE_CALL("cuCtxGetCurrent");
  *context = depth > 0 ? stack[depth - 1] : NULL;
  return 0;
}

DEFINE(cuCtxPushCurrent_v2, (cu_context context)) {
  FAKE_CALL("cuCtxPushCurrent_v2");
  if (!context || depth == 16) return INVALID_CONTEXT;
  stack[depth++] = context;
  return 0;
}

DEFINE(cuCtxPopCurrent_v2, (cu_context * context)) {
  if (depth == 0) return INVALID_CONTEXT;
  *context = stack[--depth];
  return fake_call("cuCtxPopCurrent_v2");
}

DEFINE(cuCtxGetDevice, (cu_device * device)) {
  FAKE_CALL("cuCtxGetDevice");
  if (depth == 0) return INVALID_CONTEXT;
  *device = 0;
  return 0;
}

DEFINE(cuCtxSynchronize, (void)) {
  FAKE_CALL("cuCtxSynchronize");
  return depth ? 0 : INVALID_CONTEXT;
}

/* ---- modules, functions ---- */

/* Its functions are found by their addresses. */
struct CUmod_st {
  unsigned char functions[FUNCTIONS];
  bool is_backward;          /* who has asked for the last kernel of a backward launches one */
  bool is_no_pass, is_merge; /* its argument is another */
  bool is_tiled; /* who has had tensor maps made before a launch hands over some in each */
};

static const char *const function_names[FUNCTIONS] = {
    "fatune_prepare", "fatune_kernel", "fatune_convert", "fatune_ranges",
    "fatune_lists",   "fatune_order",  "fatune_heads",   "fatune_merge_parts"};

DEFINE(cuModuleLoadData, (cu_module * module, const void *image)) {
  FAKE_CALL("cuModuleLoadData");
  if (depth == 0) return INVALID_CONTEXT;
  /* What the fake NVRTC makes, or a real one. */
  if (memcmp(image, "fake", 4) != 0 && memcmp(image, "\177ELF", 4) != 0) return INVALID_IMAGE;
  *module = calloc(1, sizeof **module);
  (*module)->is_no_pass = memcmp(image, "fake", 4) == 0 && strstr(image, ", no pass");
  (*module)->is_merge = (*module)->is_no_pass && strstr(image, ", merges");
  fake_count_live(1);
  return 0;
}

DEFINE(cuModuleUnload, (cu_module module)) {
  free(module);
  fake_count_live(-1);
  return fake_call("cuModuleUnload");
}

DEFINE(cuModuleGetFunction, (cu_function * function, cu_module module, const char *name)) {
  FAKE_CALL("cuModuleGetFunction");
  for (int n = 0; n < FUNCTIONS; n++) {
    if (strcmp(name, function_names[n]) != 0) continue;
    *function = (cu_function)(void *)&module->functions[n];
    module->functions[n] = (unsigned char)n;
    module->is_backward |= n == CONVERT;
    return 0;
  }
  return NOT_FOUND;
}

DEFINE(cuFuncGetAttribute, (int *value, int attribute, cu_function function)) {
  FAKE_CALL("cuFuncGetAttribute");
  (void)function;
  static const int values[] = {1024, 0, 0, 16, 168};
  *value = attribute >= 0 && attribute < 5 ? values[attribute] : 0;
  return 0;
}

DEFINE(cuFuncSetAttribute, (cu_function function, int attribute, int value)) {
  FAKE_CALL("cuFuncSetAttribute");
  if (attribute < 0 || attribute >= 16) return INVALID_VALUE;
  /* Of the kernel that puts parts together nobody asks. */
  if (*(unsigned char *)(void *)function != MERGE) function_settings[attribute] = value;
  return 0;
}

DEFINE(cuOccupancyMaxActiveBlocksPerMultiprocessor,
       (int *blocks, cu_function function, int block_size, size_t smem)) {
  FAKE_CALL("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  (void)function;
  (void)smem;
  *blocks = 2048 / (block_size ? block_size : 1);
  return 0;
}

/* Bytes of a struct to the end of a member. Those behind the last hold nothing, and may differ. */
#define BYTES_TO(type, member) (offsetof(type, member) + sizeof((type){0}.member))

/* Under the lock: launches come from many threads. */
static void record_launch(struct CUmod_st *module, int which, const struct fake_launch *seen,
                          const void *params) {
  struct fake_launch *const launch = &last_launch;
  module->is_tiled |= maps_made > 0;
  maps_made = 0;
  if (launch->count < 15) launch->order[launch->count] = "pkcrlohm"[which];
  launch->count++;
  memcpy(launch->grid, seen->grid, sizeof launch->grid);
  memcpy(launch->block, seen->block, sizeof launch->block);
  if (which < OF_PASSES) launch->grids[which] = seen->grid[0];
  if (which < OF_PASSES) launch->threads[which] = seen->block[0];
  launch->smem = seen->smem;
  launch->tiled = module->is_tiled;
  launch->stream = seen->stream;
  size_t bytes = BYTES_TO(struct ft_forward_params, softmax);
  if (module->is_tiled) bytes = BYTES_TO(struct ft_tiled_forward_params, rest.softmax);
  if (module->is_backward) bytes = BYTES_TO(struct ft_backward_params, softmax);
  if (module->is_no_pass) bytes = module->is_merge ? sizeof(struct ft_merge_params) : 0;
  memset(launch->params, 0, sizeof launch->params);
  static_assert(BYTES_TO(struct ft_tiled_forward_params, rest.softmax) <= sizeof launch->params &&
                    sizeof(struct ft_backward_params) <= sizeof launch->params,
                "room for the largest argument");
  memcpy(launch->params, params, bytes < sizeof launch->params ? bytes : sizeof launch->params);
}

DEFINE(cuLaunchKernel, (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem,
                        cu_stream stream, void **params, void **extra)) {
  FAKE_CALL("cuLaunchKernel");
  (void)extra;
  if (depth == 0) return INVALID_CONTEXT;
  if (!function) return INVALID_VALUE;
  unsigned char *const place = (unsigned char *)(void *)function;
  const int which = *place;
  const struct fake_launch seen = {.grid = {grid_x, grid_y, grid_z},
                                   .block = {block_x, block_y, block_z},
                                   .smem = smem,
                                   .stream = (void *)stream};
  pthread_mutex_lock(&fake.lock);
  record_launch((struct CUmod_st *)(void *)(place - which), which, &seen, params[0]);
  pthread_mutex_unlock(&fake.lock);
  return 0;
}

DEFINE(cuLaunchKernelEx,
       (const struct cu_launch_config *config, cu_function function, void **params, void **extra)) {
  return cuLaunchKernel(function, config->grid[0], 1, 1, config->block[0], 1, 1, config->smem,
                        config->stream, params, extra);
}

/* ---- memory ---- */

DEFINE(cuMemGetInfo_v2, (size_t * available, size_t *total)) {
  FAKE_CALL("cuMemGetInfo_v2");
  *available = *total = (size_t)139 << 30;
  return 0;
}

DEFINE(cuMemAlloc_v2, (cu_address * address, size_t bytes)) {
  FAKE_CALL("cuMemAlloc_v2");
  if (depth == 0 || bytes == 0) return INVALID_VALUE;
  void *const memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = (cu_address)(uintptr_t)memory;
  if (!memory) return 2;
  fake_count_live(1);
  return 0;
}

DEFINE(cuMemFree_v2, (cu_address address)) {
  free((void *)(uintptr_t)address);
  if (address) fake_count_live(-1);
  return fake_call("cuMemFree_v2");
}

DEFINE(cuPointerGetAttribute, (void *value, int attribute, cu_address address)) {
  FAKE_CALL("cuPointerGetAttribute");
  (void)value;
  (void)attribute;
  (void)address;
  return INVALID_VALUE;
}

DEFINE(cuMemcpyHtoDAsync_v2, (cu_address to, const void *from, size_t bytes, cu_stream stream)) {
  FAKE_CALL("cuMemcpyHtoDAsync_v2");
  (void)stream;
  memcpy((void *)(uintptr_t)to, from, bytes);
  return 0;
}

DEFINE(cuMemcpyDtoHAsync_v2, (void *to, cu_address from, size_t bytes, cu_stream stream)) {
  FAKE_CALL("cuMemcpyDtoHAsync_v2");
  (void)stream;
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return 0;
}

DEFINE(cuMemsetD8Async, (cu_address to, unsigned char value, size_t count, cu_stream stream)) {
  FAKE_CALL("cuMemsetD8Async");
  (void)stream;
  memset((void *)(uintptr_t)to, value, count);
  return 0;
}

DEFINE(cuMemsetD32Async, (cu_address to, unsigned value, size_t count, cu_stream stream)) {
  FAKE_CALL("cuMemsetD32Async");
  (void)stream;
  for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)to)[i] = value;
  return 0;
}

/* ---- streams, events ---- */

static cu_result make_object(const char *symbol, void **object) {
  FAKE_CALL(symbol);
  *object = calloc(1, sizeof(struct timespec));
  fake_count_live(1);
  return 0;
}

DEFINE(cuStreamCreate, (cu_stream * stream, unsigned flags)) {
  (void)flags;
  return make_object("cuStreamCreate", (void **)stream);
}

DEFINE(cuStreamDestroy_v2, (cu_stream stream)) {
  free(stream);
  fake_count_live(-1);
  return fake_call("cuStreamDestroy_v2");
}

/* Everything has happened as soon as it is enqueued. */
#define DEFINE_WAIT(symbol, type)                                                                  \
  DEFINE(symbol, (type handle)) {                                                                  \
    (void)handle;                                                                                  \
    return fake_call(#symbol);                                                                     \
  }
DEFINE_WAIT(cuStreamSynchronize, cu_stream)
DEFINE_WAIT(cuEventQuery, cu_event)
DEFINE_WAIT(cuEventSynchronize, cu_event)

DEFINE(cuStreamIsCapturing, (cu_stream stream, int *status)) {
  FAKE_CALL("cuStreamIsCapturing");
  if (gpu.capturing && !stream)
    return 906; /* STREAM_CAPTURE_IMPLICIT, as the legacy stream gives */
  *status = gpu.capturing;
  return 0;
}

#include "tests/fake/fake_graphs.h"

DEFINE(cuEventCreate, (cu_event * event, unsigned flags)) {
  (void)flags;
  return make_object("cuEventCreate", (void **)event);
}

DEFINE(cuEventDestroy_v2, (cu_event event)) {
  free(event);
  fake_count_live(-1);
  return fake_call("cuEventDestroy_v2");
}

DEFINE(cuEventRecord, (cu_event event, cu_stream stream)) {
  FAKE_CALL("cuEventRecord");
  (void)stream;
  struct timespec *const at = (struct timespec *)(void *)event;
  clock_gettime(CLOCK_MONOTONIC, at);
  if (own_clock) *at = *own_clock;
  return 0;
}

/* FATUNE_FAKE_MS: at least so long, by which a measurement needs few launches. */
DEFINE(cuEventElapsedTime, (float *milliseconds, cu_event start, cu_event end)) {
  FAKE_CALL("cuEventElapsedTime");
  const struct timespec *const a = (const void *)start, *const b = (const void *)end;
  const char *const least = getenv("FATUNE_FAKE_MS");
  *milliseconds =
      (float)fmax(difftime(b->tv_sec, a->tv_sec) * 1e3 + 1e-6 * (double)(b->tv_nsec - a->tv_nsec),
                  least ? strtod(least, NULL) : 0);
  return 0;
}

/* The real one's own checks; a map is marked by what it was made of. */
DEFINE(cuTensorMapEncodeTiled,
       (void *opaque, int type, unsigned rank, void *address, const uint64_t *extents,
        const uint64_t *strides, const unsigned *box, const unsigned *element_strides,
        int interleave, int swizzle, int l2_promotion, int fill)) {
  FAKE_CALL("cuTensorMapEncodeTiled");
  const uint64_t row = (uint64_t)box[0] * 2;
  if ((uintptr_t)opaque % 64 != 0 || (uintptr_t)address % 16 != 0 || rank < 1 || rank > 5 ||
      type < 0 || interleave != 0 || l2_promotion < 0 || fill != 0 || row % 16 != 0 ||
      (swizzle == 3 && row > 128))
    return INVALID_VALUE;
  for (unsigned dim = 0; dim < rank; dim++)
    if (extents[dim] < 1 || extents[dim] > UINT64_C(1) << 32 || box[dim] < 1 || box[dim] > 256 ||
        element_strides[dim] < 1 || element_strides[dim] > 8 ||
        (dim > 0 && (strides[dim - 1] % 16 != 0 || strides[dim - 1] >= UINT64_C(1) << 40)))
      return INVALID_VALUE;
  maps_made++;
  memset(opaque, 0, 128);
  memcpy(opaque, &address, sizeof address);
  memcpy((char *)opaque + 8, extents, rank * sizeof *extents);
  memcpy((char *)opaque + 48, strides, (rank - 1) * sizeof *strides);
  memcpy((char *)opaque + 80, box, rank * sizeof *box);
  return 0;
}
