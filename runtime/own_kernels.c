/* own_kernels.c: kernels beside those of plans, loaded when a call first needs them.
 * in -> out: request + family -> loaded kernels, one for each text that a session needs. */
#include "runtime/own_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "generator/request_fields.h"
#include "generator/status.h"
#include "runtime/kernel_source.h"
#include "runtime/session.h"

static void free_kernel(struct ft_own_kernel *kernel, fatune_session *session) {
  ft_module_unload(&kernel->module, session);
  ft_source_free(&kernel->source);
  free(kernel);
}

static void unload(fatune_session *session) {
  struct ft_own_kernel *kernel = atomic_load(&session->own_kernels.first), *next;
  for (; kernel; kernel = next) {
    next = kernel->next;
    free_kernel(kernel, session);
  }
}

static bool is_same_class(const struct ft_request *a, const struct ft_request *b) {
  for (int i = 0; i < FT_REQUEST_FIELDS; i++)
    if (ft_request_get(a, i) != ft_request_get(b, i)) return false;
  return true;
}

static struct ft_own_kernel *find(struct ft_own_kernels *kernels, const struct ft_request *class,
                                  const struct ft_family *family) {
  struct ft_own_kernel *kernel = atomic_load_explicit(&kernels->first, memory_order_acquire);
  while (kernel &&
         (kernel->source.config.family != family || !is_same_class(&kernel->request, class)))
    kernel = kernel->next;
  return kernel;
}

static int load(struct ft_own_kernel **made, fatune_session *session,
                const struct ft_request *request, const struct ft_family *family,
                const char *advice) {
  const struct ft_config config = ft_config_first(family);
  struct ft_kernel image = {0};
  bool compiled;
  FT_TRY(ft_session_refuse_capture(session, advice));
  struct ft_own_kernel *const kernel = calloc(1, sizeof *kernel);
  if (!kernel) return ft_fail(FT_E_MEMORY, "no memory for a kernel");
  kernel->request = ft_request_kernel_class(request);
  const int status = ft_session_prepare(session, request, &config, NULL, &kernel->source, &image,
                                        &kernel->module, &compiled);
  if (status != FT_OK) {
    free_kernel(kernel, session);
    return status;
  }
  ft_kernel_free(&image);
  *made = kernel;
  return FT_OK;
}

int ft_own_kernel(const struct ft_own_kernel **found, fatune_session *session,
                  const struct ft_request *request, const struct ft_family *family,
                  const char *advice) {
  struct ft_own_kernels *const kernels = &session->own_kernels;
  const struct ft_request class = ft_request_kernel_class(request);
  struct ft_own_kernel *kernel = find(kernels, &class, family);
  int status = FT_OK;
  if ((*found = kernel) != NULL) return FT_OK;
  pthread_mutex_lock(&kernels->lock);
  if ((kernel = find(kernels, &class, family)) == NULL) {
    status = load(&kernel, session, request, family, advice);
    if (status == FT_OK) {
      kernels->unload = unload;
      kernel->next = atomic_load(&kernels->first);
      atomic_store_explicit(&kernels->first, kernel, memory_order_release);
    }
  }
  pthread_mutex_unlock(&kernels->lock);
  *found = kernel;
  return status;
}

int ft_own_kernel_launch(const struct ft_own_kernel *kernel, int number, unsigned blocks,
                         int smem_bytes, const void *params, const struct ft_driver *driver,
                         cu_stream stream) {
  void *kernel_arguments[] = {(void *)(uintptr_t)params}; /* the driver only reads them */
  return ft_driver_status(driver,
                          driver->launch(kernel->module.functions[number], blocks, 1, 1,
                                         (unsigned)kernel->source.budget.threads, 1, 1,
                                         (unsigned)smem_bytes, stream, kernel_arguments, NULL),
                          "cuLaunchKernel");
}

int ft_own_kernel_launch_clusters(const struct ft_own_kernel *kernel, int number, unsigned cluster,
                                  const struct cu_launch_config *config, const void *params,
                                  const struct ft_driver *driver) {
  enum { CLUSTER_DIMENSION = 4 };
  void *kernel_arguments[] = {(void *)(uintptr_t)params}; /* the driver only reads them */
  struct cu_launch_attribute attribute = {.id = CLUSTER_DIMENSION, .cluster = {cluster, 1, 1}};
  struct cu_launch_config in_clusters = *config;
  in_clusters.attributes = &attribute;
  in_clusters.count = 1;
  return ft_driver_status(
      driver,
      driver->launch_with(&in_clusters, kernel->module.functions[number], kernel_arguments, NULL),
      "cuLaunchKernelEx");
}
