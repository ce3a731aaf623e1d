/* driver.c: the emulated GPUs behind the functions of a CUDA driver.
 * in -> out: struct ft_arch -> struct ft_driver; its calls -> memory.h, loaded objects, launch.h.
 * Stricter than a driver where that finds faults, laxer in one point: no context need be current,
 * since the memory is the process's own. Results are those of CUresult. */
#include "runtime/emulator/driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/status.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/result.h"
#include "runtime/emulator/tensor_map.h"

/* ---- the GPUs: those that were opened ---- */

enum { GPUS_MOST = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ft_arch gpus[GPUS_MOST]; /* never changed once counted */
static int gpu_count;

static bool same_gpu(const struct ft_arch *a, const struct ft_arch *b) {
  return strcmp(a->name, b->name) == 0 && a->sm == b->sm && a->sm_count == b->sm_count &&
         a->smem_per_block == b->smem_per_block && a->smem_per_sm == b->smem_per_sm &&
         a->smem_reserved == b->smem_reserved && a->regs_per_sm == b->regs_per_sm &&
         a->threads_per_sm == b->threads_per_sm && a->blocks_per_sm == b->blocks_per_sm &&
         a->l2_bytes == b->l2_bytes && a->clock_ghz == b->clock_ghz && a->dram_gbs == b->dram_gbs;
}

/* The number of the GPU, entered if it is new; -1: full. */
static int ordinal_of(const struct ft_arch *arch) {
  int ordinal = 0;
  pthread_mutex_lock(&lock);
  while (ordinal < gpu_count && !same_gpu(&gpus[ordinal], arch)) ordinal++;
  if (ordinal == gpu_count && ordinal < GPUS_MOST) gpus[gpu_count++] = *arch;
  if (ordinal == GPUS_MOST) ordinal = -1;
  pthread_mutex_unlock(&lock);
  return ordinal;
}

/* NULL: there is none. */
static const struct ft_arch *gpu_of(int ordinal) {
  pthread_mutex_lock(&lock);
  const bool known = ordinal >= 0 && ordinal < gpu_count;
  pthread_mutex_unlock(&lock);
  return known ? &gpus[ordinal] : NULL;
}

static cu_result ft_emulator_init(unsigned flags) {
  return flags ? ft_emulator_fail(CU_INVALID_VALUE) : 0;
}

static cu_result ft_emulator_driver_version(int *version) {
  *version = 12000;
  return 0;
}

static cu_result ft_emulator_device_count(int *count) {
  pthread_mutex_lock(&lock);
  *count = gpu_count;
  pthread_mutex_unlock(&lock);
  return 0;
}

static cu_result ft_emulator_device_get(cu_device *device, int ordinal) {
  if (!gpu_of(ordinal)) return ft_emulator_fail(CU_INVALID_DEVICE);
  *device = ordinal;
  return 0;
}

static cu_result ft_emulator_device_name(char *name, int length, cu_device device) {
  const struct ft_arch *const gpu = gpu_of(device);
  if (!gpu) return ft_emulator_fail(CU_INVALID_DEVICE);
  (void)snprintf(name, (size_t)length, "%s", gpu->name);
  return 0;
}

static cu_result ft_emulator_device_uuid(unsigned char uuid[16], cu_device device) {
  if (!gpu_of(device)) return ft_emulator_fail(CU_INVALID_DEVICE);
  memset(uuid, 0, 16);
  uuid[15] = (unsigned char)device;
  return 0;
}

/* The numbers that runtime/device.c asks for. The memory bus is so wide that its clock in kHz is
 * the bandwidth in MB/s. */
static cu_result ft_emulator_device_attribute(int *value, int attribute, cu_device device) {
  enum { BUS_BITS = 4000 };
  const struct ft_arch *const gpu = gpu_of(device);
  if (!gpu) return ft_emulator_fail(CU_INVALID_DEVICE);
  switch (attribute) {
  case 13: *value = (int)(gpu->clock_ghz * 1e6); break; /* kHz */
  case 16: *value = gpu->sm_count; break;
  case 36: *value = (int)(gpu->dram_gbs * 1e3); break;
  case 37: *value = BUS_BITS; break;
  case 38: *value = (int)gpu->l2_bytes; break;
  case 39: *value = gpu->threads_per_sm; break;
  case 75: *value = gpu->sm / 10; break;
  case 76: *value = gpu->sm % 10; break;
  case 81: *value = gpu->smem_per_sm; break;
  case 82: *value = gpu->regs_per_sm; break;
  case 97: *value = gpu->smem_per_block; break;
  case 106: *value = gpu->blocks_per_sm; break;
  case 111: *value = gpu->smem_reserved; break;
  default: return ft_emulator_refuse(CU_INVALID_VALUE, "attribute %d is not emulated", attribute);
  }
  return 0;
}

static size_t pages(int which) {
  const long count = sysconf(which), size = sysconf(_SC_PAGESIZE);
  return count > 0 && size > 0 ? (size_t)count * (size_t)size : 0;
}

static cu_result ft_emulator_device_memory(size_t *bytes, cu_device device) {
  if (!gpu_of(device)) return ft_emulator_fail(CU_INVALID_DEVICE);
  *bytes = pages(_SC_PHYS_PAGES);
  return 0;
}

static cu_result ft_emulator_memory_info(size_t *available, size_t *total) {
  *available = pages(_SC_AVPHYS_PAGES);
  *total = pages(_SC_PHYS_PAGES);
  return 0;
}

/* ---- contexts: one for each GPU, its address in an array ---- */

enum { CONTEXTS_MOST = 64 };
static char contexts[GPUS_MOST];
static _Thread_local cu_context current[CONTEXTS_MOST];
static _Thread_local int depth;

static cu_result ft_emulator_primary_retain(cu_context *context, cu_device device) {
  if (!gpu_of(device)) return ft_emulator_fail(CU_INVALID_DEVICE);
  *context = (cu_context)(void *)&contexts[device];
  return 0;
}

static cu_result ft_emulator_primary_release(cu_device device) {
  return gpu_of(device) ? 0 : ft_emulator_fail(CU_INVALID_DEVICE);
}

static cu_result ft_emulator_context_current(cu_context *context) {
  *context = depth > 0 ? current[depth - 1] : NULL;
  return 0;
}

static cu_result ft_emulator_context_push(cu_context context) {
  if (!context || depth == CONTEXTS_MOST) return ft_emulator_fail(CU_INVALID_CONTEXT);
  current[depth++] = context;
  return 0;
}

static cu_result ft_emulator_context_pop(cu_context *context) {
  if (depth == 0) return ft_emulator_fail(CU_INVALID_CONTEXT);
  *context = current[--depth];
  return 0;
}

static cu_result ft_emulator_context_device(cu_device *device) {
  if (depth == 0) return ft_emulator_fail(CU_INVALID_CONTEXT);
  *device = (int)((char *)current[depth - 1] - contexts);
  return 0;
}

static cu_result ft_emulator_context_synchronize(void) {
  return 0;
}

/* The context says which GPU a module is for. */
static cu_result ft_emulator_module_load(cu_module *module, const void *image) {
  cu_device device = 0;
  const cu_result result = ft_emulator_context_device(&device);
  return result ? result : ft_emulator_load(module, image, &gpus[device]);
}

/* ---- memory ---- */

static cu_result ft_emulator_memory_alloc(cu_address *address, size_t bytes) {
  if (bytes == 0) return ft_emulator_refuse(CU_INVALID_VALUE, "an allocation of 0 bytes");
  *address = bytes <= pages(_SC_PHYS_PAGES) ? ft_memory_allocate(bytes) : 0;
  return *address ? 0 : ft_emulator_fail(CU_OUT_OF_MEMORY);
}

static cu_result ft_emulator_memory_free(cu_address address) {
  if (!address || ft_memory_free(address)) return 0;
  return ft_emulator_refuse(CU_INVALID_VALUE, "0x%llx is no allocation, or is freed already",
                            (unsigned long long)address);
}

static cu_result ft_emulator_pointer_attribute(void *value, int attribute, cu_address address) {
  enum { MEMORY_TYPE = 2, MEMORY_TYPE_DEVICE = 2 };
  if (attribute != MEMORY_TYPE || !ft_memory_holds(address, 1))
    return ft_emulator_fail(CU_INVALID_VALUE);
  memcpy(value, &(int){MEMORY_TYPE_DEVICE}, sizeof(int));
  return 0;
}

/* Memory of the host's own is as good as an allocation; one that is left half-way is a fault. */
static cu_result check_range(const char *what, cu_address address, size_t bytes) {
  if (bytes == 0 || ft_memory_holds(address, bytes)) return 0;
  if (address && !ft_memory_holds(address, 1)) return 0;
  return ft_emulator_refuse(CU_INVALID_VALUE, "%s %zu bytes at 0x%llx, past the end of the memory",
                            what, bytes, (unsigned long long)address);
}

static cu_result ft_emulator_copy_to_device(cu_address to, const void *from, size_t bytes,
                                            cu_stream stream) {
  (void)stream;
  const cu_result result = check_range("copies", to, bytes);
  if (result || bytes == 0) return result;
  memmove((void *)(uintptr_t)to, from, bytes);
  ft_memory_written(to, bytes);
  return 0;
}

static cu_result ft_emulator_copy_to_host(void *to, cu_address from, size_t bytes,
                                          cu_stream stream) {
  (void)stream;
  const cu_result result = check_range("copies", from, bytes);
  if (result || bytes == 0) return result;
  memmove(to, (const void *)(uintptr_t)from, bytes);
  return 0;
}

static cu_result ft_emulator_set_bytes(cu_address to, unsigned char value, size_t count,
                                       cu_stream stream) {
  (void)stream;
  const cu_result result = check_range("sets", to, count);
  if (result || count == 0) return result;
  memset((void *)(uintptr_t)to, value, count);
  ft_memory_written(to, count);
  return 0;
}

static cu_result ft_emulator_set_words(cu_address to, unsigned value, size_t count,
                                       cu_stream stream) {
  (void)stream;
  if (to % sizeof value != 0 || count > SIZE_MAX / sizeof value)
    return ft_emulator_fail(CU_INVALID_VALUE);
  const cu_result result = check_range("sets", to, count * sizeof value);
  if (result || count == 0) return result;
  for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)to)[i] = value;
  ft_memory_written(to, count * sizeof value);
  return 0;
}

/* ---- streams and events: there is nothing to wait for ---- */

static cu_result make_object(void **object) {
  *object = malloc(1);
  return *object ? 0 : ft_emulator_fail(CU_OUT_OF_MEMORY);
}

static cu_result ft_emulator_stream_create(cu_stream *stream, unsigned flags) {
  (void)flags;
  return make_object((void **)stream);
}

static cu_result ft_emulator_stream_destroy(cu_stream stream) {
  free(stream);
  return 0;
}

static cu_result ft_emulator_stream_synchronize(cu_stream stream) {
  (void)stream;
  return 0;
}

static cu_result ft_emulator_stream_capturing(cu_stream stream, int *status) {
  (void)stream;
  *status = 0;
  return 0;
}

/* What is captured would be replayed to be timed. */
static cu_result ft_emulator_capture_begin(cu_stream stream, int mode) {
  (void)stream;
  (void)mode;
  return ft_emulator_refuse(CU_NOT_SUPPORTED, "the emulator captures no streams");
}

static cu_result ft_emulator_capture_end(cu_stream stream, cu_graph *graph) {
  (void)stream;
  *graph = NULL;
  return ft_emulator_fail(CU_NOT_SUPPORTED);
}

static cu_result ft_emulator_graph_instantiate(cu_graph_exec *exec, cu_graph graph,
                                               unsigned long long flags) {
  (void)graph;
  (void)flags;
  *exec = NULL;
  return ft_emulator_fail(CU_NOT_SUPPORTED);
}

static cu_result ft_emulator_graph_launch(cu_graph_exec exec, cu_stream stream) {
  (void)exec;
  (void)stream;
  return ft_emulator_fail(CU_NOT_SUPPORTED);
}

static cu_result ft_emulator_graph_exec_destroy(cu_graph_exec exec) {
  (void)exec;
  return ft_emulator_fail(CU_NOT_SUPPORTED);
}

static cu_result ft_emulator_graph_destroy(cu_graph graph) {
  (void)graph;
  return ft_emulator_fail(CU_NOT_SUPPORTED);
}

static cu_result ft_emulator_event_create(cu_event *event, unsigned flags) {
  (void)flags;
  return make_object((void **)event);
}

static cu_result ft_emulator_event_destroy(cu_event event) {
  free(event);
  return 0;
}

static cu_result ft_emulator_event_record(cu_event event, cu_stream stream) {
  (void)stream;
  return event ? 0 : ft_emulator_fail(CU_INVALID_VALUE);
}

static cu_result ft_emulator_event_query(cu_event event) {
  return event ? 0 : ft_emulator_fail(CU_INVALID_VALUE);
}

static cu_result ft_emulator_event_synchronize(cu_event event) {
  return event ? 0 : ft_emulator_fail(CU_INVALID_VALUE);
}

static cu_result ft_emulator_event_elapsed(float *milliseconds, cu_event start, cu_event end) {
  (void)start;
  (void)end;
  *milliseconds = 0;
  return ft_emulator_refuse(CU_NOT_SUPPORTED,
                            "the emulator has no clock: nothing it does can be timed");
}

/* ---- the table ---- */

int ft_emulator_open(struct ft_driver *driver, const struct ft_arch *arch, int *ordinal) {
  memset(driver, 0, sizeof *driver);
  *ordinal = ordinal_of(arch);
  if (*ordinal < 0)
    return ft_fail(FT_E_UNSUPPORTED, "%d GPUs are emulated in this process already; %s is one more",
                   GPUS_MOST, arch->name);
  *driver = (struct ft_driver){.emulated = true, .launches_early = true};
#define CU(member, symbol, arguments) driver->member = ft_emulator_##member;
  FT_DRIVER_FUNCTIONS(CU)
#undef CU
  return FT_OK;
}
