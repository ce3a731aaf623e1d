/* module.c: the kernels of an image on the GPU.
 * in -> out: struct ft_kernel -> loaded functions with their shared memory granted.
 * Attribute numbers are CUfunction_attribute of the CUDA driver API. */
#include "runtime/module.h"

#include <string.h>

#include "generator/status.h"
#include "runtime/image.h"
#include "runtime/launch_families.h"
#include "runtime/session.h"

enum {
  ATTRIBUTE_MAX_THREADS = 0,
  ATTRIBUTE_STATIC_SMEM = 1,
  ATTRIBUTE_LOCAL_BYTES = 3,
  ATTRIBUTE_REGISTERS = 4,
  ATTRIBUTE_DYNAMIC_SMEM = 8,
  ATTRIBUTE_CARVEOUT = 9,
  ATTRIBUTE_CLUSTER_WIDTH = 11,
  ATTRIBUTE_BIG_CLUSTERS = 14
};

/* Whether the result means that the image cannot be used. Other results mean a GPU in trouble. */
static bool is_image_fault(cu_result result) {
  switch (result) {
  case 1:   /* INVALID_VALUE: what old drivers say of a damaged image */
  case 200: /* INVALID_IMAGE */
  case 209: /* NO_BINARY_FOR_GPU */
  case 218: /* INVALID_PTX */
  case 222: /* UNSUPPORTED_PTX_VERSION */
  case 300: /* INVALID_SOURCE */
  case 500: /* NOT_FOUND: the entry is not in it */ return true;
  default: return false;
  }
}

static int read_attributes(struct ft_module *module, cu_function function,
                           const struct ft_driver *driver) {
  const struct {
    int attribute;
    int *value;
  } wanted[] = {{ATTRIBUTE_MAX_THREADS, &module->max_threads},
                {ATTRIBUTE_STATIC_SMEM, &module->static_smem},
                {ATTRIBUTE_LOCAL_BYTES, &module->spill_bytes},
                {ATTRIBUTE_REGISTERS, &module->registers}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    FT_TRY(ft_driver_status(
        driver, driver->function_attribute(wanted[i].value, wanted[i].attribute, function),
        "cuFuncGetAttribute"));
  return FT_OK;
}

static int grant_shared_memory(cu_function function, const struct ft_driver *driver, int bytes) {
  enum { WITHOUT_ASKING = 48 * 1024 };
  if (bytes > WITHOUT_ASKING)
    FT_TRY(ft_driver_status(driver, driver->function_set(function, ATTRIBUTE_DYNAMIC_SMEM, bytes),
                            "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)"));
  /* All of L1 is to be shared memory. Otherwise the driver may choose a split with which fewer
   * blocks fit than planned, and a kernel with another split waits for the one before it. */
  return ft_driver_status(driver, driver->function_set(function, ATTRIBUTE_CARVEOUT, 100),
                          "cuFuncSetAttribute(PREFERRED_SHARED_MEMORY_CARVEOUT)");
}

/* Clusters of more than 8 blocks are not on every GPU that has clusters, and have to be asked for.
 */
static int ask_for_big_clusters(cu_function function, const struct ft_driver *driver) {
  return ft_driver_status(driver, driver->function_set(function, ATTRIBUTE_BIG_CLUSTERS, 1),
                          "cuFuncSetAttribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED)");
}

/* A driver that knows of no clusters calls the question an invalid value. */
static int allow_big_clusters(cu_function function, const struct ft_driver *driver) {
  enum { WITHOUT_ASKING = 8, INVALID_VALUE = 1 };
  int blocks = 0;
  const cu_result result = driver->function_attribute(&blocks, ATTRIBUTE_CLUSTER_WIDTH, function);
  if (result == INVALID_VALUE) return FT_OK;
  FT_TRY(ft_driver_status(driver, result, "cuFuncGetAttribute(REQUIRED_CLUSTER_WIDTH)"));
  return blocks > WITHOUT_ASKING ? ask_for_big_clusters(function, driver) : FT_OK;
}

static int check_threads(const struct ft_module *module, const struct ft_kernel *kernel) {
  if (kernel->threads <= module->max_threads) return FT_OK;
  return ft_fail(FT_E_DEVICE, "the kernel needs %d threads in a block; the GPU grants it %d",
                 kernel->threads, module->max_threads);
}

static int load_main(struct ft_module *module, cu_function function, const struct ft_kernel *kernel,
                     const struct ft_driver *driver) {
  FT_TRY(read_attributes(module, function, driver));
  FT_TRY(check_threads(module, kernel));
  FT_TRY(allow_big_clusters(function, driver));
  return grant_shared_memory(function, driver, kernel->smem_bytes);
}

/* How much shared memory the kernels beside the main one take is decided by the launch; here they
 * are granted all there is. *result also holds the driver's answer about a missing kernel. */
static int load_kernels(struct ft_module *module, const struct ft_launch_family *family,
                        const struct ft_kernel *kernel, const fatune_session *session,
                        cu_result *result) {
  enum { NOT_FOUND = 500 };
  const struct ft_driver *const driver = &session->driver;
  for (int n = 0; n < family->kernel_count; n++) {
    cu_function *const function = &module->functions[n];
    const bool is_optional = family->optional >> n & 1;
    /* Not asked for where it is known to be absent: tools that watch the driver name the answer. */
    if (is_optional && ft_image_lacks(kernel->image, kernel->image_size, family->entries[n])) {
      *function = NULL;
      continue;
    }
    *result = driver->module_function(function, module->handle, family->entries[n]);
    if (*result == NOT_FOUND && is_optional) {
      *function = NULL;
      *result = 0;
      continue;
    }
    FT_TRY(ft_driver_status(driver, *result, "cuModuleGetFunction"));
    if (n == family->main) module->main = *function;
    if (family->clustered >> n & 1) FT_TRY(ask_for_big_clusters(*function, driver));
    FT_TRY(n == family->main
               ? load_main(module, *function, kernel, driver)
               : grant_shared_memory(*function, driver, session->device.arch.smem_per_block));
  }
  return FT_OK;
}

int ft_module_try_load(struct ft_module *module, fatune_session *session,
                       const struct ft_kernel *kernel, const struct ft_family *family,
                       bool *refused) {
  memset(module, 0, sizeof *module);
  *refused = false;
  FT_TRY(ft_session_enter(session));

  const struct ft_driver *const driver = &session->driver;
  int status;
  cu_result result = driver->module_load(&module->handle, kernel->image);
  if (result) module->handle = NULL;
  FT_CHECK(ft_driver_status(driver, result, "cuModuleLoadData"));
  FT_CHECK(load_kernels(module, ft_launch_family_of(family), kernel, session, &result));

done:
  *refused = is_image_fault(result);
  if (status != FT_OK && module->handle) driver->module_unload(module->handle);
  if (status != FT_OK) memset(module, 0, sizeof *module);
  ft_session_leave(session);
  return status;
}

int ft_module_load(struct ft_module *module, fatune_session *session,
                   const struct ft_kernel *kernel, const struct ft_family *family) {
  bool refused;
  return ft_module_try_load(module, session, kernel, family, &refused);
}

void ft_module_unload(struct ft_module *module, fatune_session *session) {
  if (module->handle) {
    /* The module is unloaded even where the context cannot be entered: nobody tries again. */
    const bool entered = ft_session_enter(session) == FT_OK;
    session->driver.module_unload(module->handle);
    if (entered) ft_session_leave(session);
  }
  memset(module, 0, sizeof *module);
}
