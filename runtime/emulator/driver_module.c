/* driver_module.c: loaded kernels and their launches.
 * in -> out: image -> shared object in memory; function + grid + arguments -> the launch. Nothing
 * of the object runs in this process (loaded.h). */
#include "runtime/emulator/driver_module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "generator/emit.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/grid.h"
#include "runtime/emulator/loaded.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/object.h"
#include "runtime/emulator/result.h"

enum { WITHOUT_ASKING = 48 * 1024 };

/* A kernel of a module. */
struct CUfunc_st {
  const struct CUmod_st *module;
  int entry; /* its number */
  unsigned shared_granted;
  bool big_clusters;
};

enum { PORTABLE_CLUSTER = 8 };

struct CUmod_st {
  struct ft_arch gpu;
  struct ft_loaded loaded;
  struct CUfunc_st functions[FT_ENTRIES_MOST];
};

/* ---- modules ---- */

static cu_result write_object(struct CUmod_st *module, const struct ft_emulator_image *image) {
  const char *bytes = (const char *)(image + 1);
  uint64_t left = image->bytes;
  const int file = module->loaded.file = memfd_create("fatune-kernel", MFD_CLOEXEC);
  if (file < 0) return ft_emulator_refuse(CU_OPERATING_SYSTEM, "memfd_create: %s", strerror(errno));
  while (left > 0) {
    const ssize_t count = write(file, bytes, left);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return ft_emulator_refuse(CU_OUT_OF_MEMORY, "no memory for a kernel of %llu bytes: %s",
                                (unsigned long long)image->bytes, strerror(errno));
    bytes += count;
    left -= (uint64_t)count;
  }
  return 0;
}

static cu_result open_object(struct CUmod_st *module) {
  struct ft_loaded *const loaded = &module->loaded;
  char message[1024] = "";
  (void)snprintf(loaded->path, sizeof loaded->path, "/proc/%ld/fd/%d", (long)getpid(),
                 loaded->file);
  const cu_result result = ft_loaded_read(loaded, message, sizeof message);
  if (result) return ft_emulator_refuse(result, "%s", message);
  for (int n = 0; n < loaded->entry_count; n++)
    module->functions[n] = (struct CUfunc_st){module, n, WITHOUT_ASKING, false};
  return 0;
}

static void close_module(struct CUmod_st *module) {
  if (module->loaded.file >= 0) (void)close(module->loaded.file);
  free(module);
}

cu_result ft_emulator_load(cu_module *out, const void *bytes, const struct ft_arch *gpu) {
  struct ft_emulator_image image;
  *out = NULL;
  if (memcmp(bytes, FT_EMULATOR_MAGIC, sizeof image.magic) != 0)
    return ft_emulator_fail(CU_INVALID_IMAGE);
  struct CUmod_st *const module = calloc(1, sizeof *module);
  if (!module) return ft_emulator_fail(CU_OUT_OF_MEMORY);
  module->gpu = *gpu;
  cu_result result = write_object(module, bytes);
  if (!result) result = open_object(module);
  if (result)
    close_module(module);
  else
    *out = module;
  return result;
}

cu_result ft_emulator_module_unload(cu_module module) {
  if (module) close_module(module);
  return 0;
}

cu_result ft_emulator_module_function(cu_function *function, cu_module module, const char *name) {
  for (int n = 0; n < module->loaded.entry_count; n++) {
    *function = &module->functions[n];
    if (strcmp(module->loaded.entries[n].name, name) == 0) return 0;
  }
  *function = NULL;
  return ft_emulator_refuse(CU_NOT_FOUND, "there is %s, but no %s", FT_ENTRY, name);
}

/* ---- functions; attribute numbers are CUfunction_attribute ---- */

static int threads_most(const struct ft_arch *gpu) {
  enum { THREADS_OF_A_BLOCK = 1024 };
  return gpu->threads_per_sm < THREADS_OF_A_BLOCK ? gpu->threads_per_sm : THREADS_OF_A_BLOCK;
}

static int cluster_of(cu_function function) {
  return function->module->loaded.entries[function->entry].cluster;
}

cu_result ft_emulator_function_attribute(int *value, int attribute, cu_function function) {
  enum { MAX_THREADS = 0, CLUSTER_WIDTH = 11 };
  *value = 0;
  if (attribute == MAX_THREADS) *value = threads_most(&function->module->gpu);
  if (attribute == CLUSTER_WIDTH) *value = cluster_of(function);
  return 0;
}

cu_result ft_emulator_function_set(cu_function function, int attribute, int value) {
  enum { DYNAMIC_SMEM = 8, BIG_CLUSTERS = 14 };
  const struct CUmod_st *const module = function->module;
  if (attribute == BIG_CLUSTERS) function->big_clusters = value != 0;
  if (attribute != DYNAMIC_SMEM) return 0;
  if (value < 0 || value > module->gpu.smem_per_block)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "%d bytes of shared memory; a block of %s may have %d", value,
                              module->gpu.name, module->gpu.smem_per_block);
  function->shared_granted = (unsigned)value;
  return 0;
}

cu_result ft_emulator_occupancy(int *blocks, cu_function function, int block_size, size_t smem) {
  const struct ft_arch *const gpu = &function->module->gpu;
  if (block_size < 1) return ft_emulator_fail(CU_INVALID_VALUE);
  const size_t each = smem + (size_t)gpu->smem_reserved;
  const int by_threads = gpu->threads_per_sm / block_size;
  const int by_memory = each ? (int)((size_t)gpu->smem_per_sm / each) : by_threads;
  *blocks = by_threads < by_memory ? by_threads : by_memory;
  if (*blocks > gpu->blocks_per_sm) *blocks = gpu->blocks_per_sm;
  return 0;
}

/* ---- launches ---- */

static _Thread_local struct ft_emulated_tensor expected[FT_TENSORS_MOST];
static _Thread_local int expected_count;

void ft_emulator_expect(const struct ft_emulated_tensor *tensors, int count) {
  expected_count = count < FT_TENSORS_MOST ? count : FT_TENSORS_MOST;
  memcpy(expected, tensors, (size_t)expected_count * sizeof *expected);
}

/* $FATUNE_EMULATOR_STEPS, else what no kernel of ours comes near in one block. */
static cu_result read_steps(uint64_t *steps) {
  const char *const text = secure_getenv("FATUNE_EMULATOR_STEPS");
  *steps = 4000000000;
  if (!text || !*text) return 0;
  char *end;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (errno == 0 && *end == '\0' && value > 0) {
    *steps = (uint64_t)value;
    return 0;
  }
  return ft_emulator_refuse(CU_INVALID_VALUE,
                            "FATUNE_EMULATOR_STEPS is \"%s\"; allowed: a whole number >= 1", text);
}

static cu_result check_shape(const struct ft_arch *gpu, const unsigned grid[3],
                             const unsigned block[3]) {
  if (grid[0] < 1 || grid[0] > INT32_MAX || grid[1] != 1 || grid[2] != 1)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "the grid is %u x %u x %u; emulated: 1 .. 2^31 - 1, 1, 1", grid[0],
                              grid[1], grid[2]);
  const unsigned most = (unsigned)threads_most(gpu);
  if (block[0] < 1 || block[0] > most || block[0] % FE_WARP != 0 || block[1] != 1 || block[2] != 1)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "the block is %u x %u x %u; emulated: multiples of %d up to %u, 1, 1",
                              block[0], block[1], block[2], FE_WARP, most);
  return 0;
}

/* Where plain stores are not seen: all that the launch could write counts as written, as the next
 * one may read it. */
static void assume_written(const struct ft_emulated_tensor *tensors, int count) {
  for (int n = 0; n < count; n++) {
    const struct ft_emulated_tensor *const tensor = &tensors[n];
    int64_t elements = 1;
    for (int dim = 0; dim < FT_TENSOR_DIMS; dim++)
      elements += (tensor->extents[dim] - 1) * tensor->strides[dim];
    if (tensor->writable)
      ft_memory_written(tensor->address, (size_t)(elements * tensor->element_bytes));
  }
}

static cu_result launch(const struct cu_launch_config *config, int cluster, cu_function function,
                        void **params, void **extra) {
  const int tensor_count = expected_count;
  expected_count = 0;
  if (!function || !params || !params[0] || extra) return ft_emulator_fail(CU_INVALID_VALUE);
  const struct CUmod_st *const module = function->module;
  const unsigned grid_x = config->grid[0], smem = config->smem;
  uint64_t steps;
  cu_result result = check_shape(&module->gpu, config->grid, config->block);
  if (!result) result = read_steps(&steps);
  if (result) return result;
  if (cluster > PORTABLE_CLUSTER && !function->big_clusters)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "clusters of %d blocks; allowed without "
                              "NON_PORTABLE_CLUSTER_SIZE_ALLOWED: %d",
                              cluster, PORTABLE_CLUSTER);
  if (grid_x % (unsigned)cluster != 0)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "the grid is %u blocks; allowed for a kernel with clusters of %d "
                              "(__cluster_dims__): multiples of %d",
                              grid_x, cluster, cluster);
  if (smem > function->shared_granted || smem > FE_SHARED_MOST)
    return ft_emulator_refuse(CU_INVALID_VALUE, "%u bytes of shared memory; the function has %u",
                              smem, function->shared_granted);

  const struct ft_emulated_launch launch = {.grid = grid_x,
                                            .threads = config->block[0],
                                            .cluster = cluster,
                                            .shared_bytes = smem,
                                            .argument = params[0],
                                            .tensors = expected,
                                            .tensor_count = tensor_count,
                                            .steps_most = steps};
  char message[2048];
  if (ft_loaded_launch(&module->loaded, function->entry, &launch, message, sizeof message) == 0) {
    if (!module->loaded.sees_plain) assume_written(launch.tensors, launch.tensor_count);
    return 0;
  }
  return ft_emulator_refuse(CU_LAUNCH_FAILED, "%s", message);
}

cu_result ft_emulator_launch(cu_function function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned smem, cu_stream stream, void **params, void **extra) {
  const struct cu_launch_config config = {.grid = {grid_x, grid_y, grid_z},
                                          .block = {block_x, block_y, block_z},
                                          .smem = smem,
                                          .stream = stream};
  if (!function) return ft_emulator_fail(CU_INVALID_VALUE);
  return launch(&config, cluster_of(function), function, params, extra);
}

/* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION says how many blocks clusters have, of a kernel that does
 * not. */
cu_result ft_emulator_launch_with(const struct cu_launch_config *config, cu_function function,
                                  void **params, void **extra) {
  enum { CLUSTER_DIMENSION = 4 };
  if (!function) return ft_emulator_fail(CU_INVALID_VALUE);
  int cluster = cluster_of(function);
  for (unsigned n = 0; n < config->count; n++) {
    const struct cu_launch_attribute *const attribute = &config->attributes[n];
    if (attribute->id != CLUSTER_DIMENSION) continue;
    const unsigned *const blocks = attribute->cluster;
    if (cluster != 1 || blocks[0] == 0 || blocks[0] > FT_CLUSTER_MOST ||
        (blocks[0] & (blocks[0] - 1)) != 0 || blocks[1] != 1 || blocks[2] != 1)
      return ft_emulator_refuse(
          CU_INVALID_VALUE,
          "clusters of %u x %u x %u blocks; emulated: 1, 2, 4, 8 and 16 in x, of a kernel "
          "without __cluster_dims__",
          blocks[0], blocks[1], blocks[2]);
    cluster = (int)blocks[0];
  }
  return launch(config, cluster, function, params, extra);
}
