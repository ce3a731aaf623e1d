/* module.h: a kernel on the GPU.
 * in -> out: struct ft_kernel -> loaded functions with their shared memory granted. */
#ifndef RUNTIME_MODULE_H
#define RUNTIME_MODULE_H

#include <stdbool.h>

#include "cache/kernel.h"
#include "generator/request.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"

/* A loaded kernel, or the three of a backward. */
struct ft_module {
  cu_module handle;
  cu_function function;                                 /* the kernel, in a backward the main one */
  cu_function prepare, convert;                         /* of a backward */
  int registers, spill_bytes, static_smem, max_threads; /* as the driver tells */
};

/* Loads the image and grants it its shared memory. */
int ft_module_load(struct ft_module *module, fatune_session *session,
                   const struct ft_kernel *kernel, enum ft_pass pass);
/* The same; *refused is true when the driver found fault with the image itself, so that another
 * image of the same source may do. */
int ft_module_try_load(struct ft_module *module, fatune_session *session,
                       const struct ft_kernel *kernel, enum ft_pass pass, bool *refused);
void ft_module_unload(struct ft_module *module, fatune_session *session);

#endif
