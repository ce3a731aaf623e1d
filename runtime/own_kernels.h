/* own_kernels.h: kernels beside those of plans, loaded when a call first needs them.
 * in -> out: request + family -> loaded kernels, one for each text that a session needs. */
#ifndef RUNTIME_OWN_KERNELS_H
#define RUNTIME_OWN_KERNELS_H

#include "generator/family.h"
#include "generator/emit.h"
#include "generator/request.h"
#include "runtime/fatune.h"
#include "runtime/driver.h"
#include "runtime/module.h"

struct ft_own_kernel {
  struct ft_request request; /* kernel class */
  struct ft_source source;
  struct ft_module module;
  struct ft_own_kernel *next;
};

/* The kernels of this request by a family that has one config; they stay loaded until the session
 * is closed. Those that are loaded already are found without a lock. FT_E_NOT_PREPARED with the
 * advice where they would be loaded during a capture. */
int ft_own_kernel(const struct ft_own_kernel **kernel, fatune_session *session,
                  const struct ft_request *request, const struct ft_family *family,
                  const char *advice);

/* Launches one of them with what its family's kernels read. smem_bytes: of dynamic shared memory.
 */
int ft_own_kernel_launch(const struct ft_own_kernel *kernel, int number, unsigned blocks,
                         int smem_bytes, const void *params, const struct ft_driver *driver,
                         cu_stream stream);

/* The same in clusters of so many blocks. */
int ft_own_kernel_launch_clusters(const struct ft_own_kernel *kernel, int number, unsigned cluster,
                                  const struct cu_launch_config *config, const void *params,
                                  const struct ft_driver *driver);

#endif
