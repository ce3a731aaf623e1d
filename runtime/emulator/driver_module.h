/* driver_module.h: loaded kernels and their launches.
 * in -> out: image -> module; function + grid + arguments -> a launch. */
#ifndef RUNTIME_EMULATOR_DRIVER_MODULE_H
#define RUNTIME_EMULATOR_DRIVER_MODULE_H

#include "generator/arch.h"
#include "runtime/driver.h"
#include "runtime/emulator/tensor.h"

/* Describes the arguments of this thread's next launch; at most FT_TENSORS_MOST. Memory in no
 * tensor may be used if it was allocated through the driver and does not hold a tensor. */
void ft_emulator_expect(const struct ft_emulated_tensor *tensors, int count);

/* The names are those of the table's members. */
cu_result ft_emulator_load(cu_module *module, const void *image, const struct ft_arch *gpu);
cu_result ft_emulator_module_unload(cu_module module);
cu_result ft_emulator_module_function(cu_function *function, cu_module module, const char *name);
cu_result ft_emulator_function_attribute(int *value, int attribute, cu_function function);
cu_result ft_emulator_function_set(cu_function function, int attribute, int value);
cu_result ft_emulator_occupancy(int *blocks, cu_function function, int block_size, size_t smem);
cu_result ft_emulator_launch(cu_function function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned smem, cu_stream stream, void **params, void **extra);
cu_result ft_emulator_launch_with(const struct cu_launch_config *config, cu_function function,
                                  void **params, void **extra);

#endif
