/* driver_parts.h: what the emulated driver's files share; nobody else includes this.
 * in -> out: CUresult by name; modules and launches (driver_module.c) -> the table (driver.c). */
#ifndef RUNTIME_EMULATOR_DRIVER_PARTS_H
#define RUNTIME_EMULATOR_DRIVER_PARTS_H

#include "generator/arch.h"
#include "runtime/driver.h"

/* CUresult */
enum {
  CU_INVALID_VALUE = 1,
  CU_OUT_OF_MEMORY = 2,
  CU_INVALID_DEVICE = 101,
  CU_INVALID_IMAGE = 200,
  CU_INVALID_CONTEXT = 201,
  CU_OPERATING_SYSTEM = 304,
  CU_NOT_FOUND = 500,
  CU_LAUNCH_FAILED = 719,
  CU_NOT_SUPPORTED = 801
};

/* Keeps the words for error_string in this thread and returns result. */
cu_result ft_emulator_refuse(cu_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same without words of its own. */
cu_result ft_emulator_fail(cu_result result);

/* tensor_map.c */
cu_result ft_emulator_tensor_map_encode(void *opaque, int type, unsigned rank, void *address,
                                        const uint64_t *extents, const uint64_t *strides,
                                        const unsigned *box, const unsigned *element_strides,
                                        int interleave, int swizzle, int l2_promotion, int fill);

/* driver_module.c. The names are those of the table's members. */
cu_result ft_emulator_load(cu_module *module, const void *image, const struct ft_arch *gpu);
cu_result ft_emulator_module_unload(cu_module module);
cu_result ft_emulator_module_function(cu_function *function, cu_module module, const char *name);
cu_result ft_emulator_function_attribute(int *value, int attribute, cu_function function);
cu_result ft_emulator_function_set(cu_function function, int attribute, int value);
cu_result ft_emulator_occupancy(int *blocks, cu_function function, int block_size, size_t smem);
cu_result ft_emulator_launch(cu_function function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned smem, cu_stream stream, void **params, void **extra);

#endif
