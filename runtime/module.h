/* module.h: the kernels of an image on the GPU.
 * in -> out: struct ft_kernel -> loaded functions with their shared memory granted. */
#ifndef RUNTIME_MODULE_H
#define RUNTIME_MODULE_H

#include <stdbool.h>

#include "cache/kernel.h"
#include "generator/family.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/launch_family.h"

struct ft_module {
  cu_module handle;
  cu_function functions[FT_KERNELS_MOST]; /* in the order of the family's entries */
  cu_function main;
  /* Of the main kernel, as the driver reports them. */
  int registers, spill_bytes, static_smem, max_threads;
};

/* Loads the image and grants its kernels their shared memory. */
int ft_module_load(struct ft_module *module, fatune_session *session,
                   const struct ft_kernel *kernel, const struct ft_family *family);
/* The same; *refused is true when the driver found fault with the image itself, so that another
 * image of the same source may do. */
int ft_module_try_load(struct ft_module *module, fatune_session *session,
                       const struct ft_kernel *kernel, const struct ft_family *family,
                       bool *refused);
void ft_module_unload(struct ft_module *module, fatune_session *session);

#endif
