/* arguments.h: the one argument of an emitted kernel, as the host fills it and the device reads it.
 * in -> out: arguments.def -> structs; their fields as text, for the templates. The mma kernels
 * take struct ft_forward_params, the wgmma kernels struct ft_tiled_forward_params, all kernels of a
 * backward struct ft_backward_params, the main one by wgmma struct ft_tiled_backward_params. */
#ifndef GENERATOR_ARGUMENTS_H
#define GENERATOR_ARGUMENTS_H

#include <stddef.h>
#include <stdint.h>

/* CUtensorMap: how TMA finds its way in a tensor. Kernels have it from parts/ptx_tma.cu.in. */
struct ft_tensor_map {
  _Alignas(64) uint64_t opaque[16];
};

#define FIELD(c_type, type, name, meaning) c_type name;
#define STRUCT(c_name, name, alignment, meaning, fields)                                           \
  struct c_name {                                                                                  \
    fields                                                                                         \
  };
#include "generator/arguments.def" /* IWYU pragma: keep */
#undef STRUCT
#undef FIELD

/* The same as words of CUDA C. */
struct ft_argument_field {
  const char *type, *name, *meaning; /* a meaning may be "" */
};

struct ft_argument_struct {
  const char *name;
  int alignment; /* 0: that of its fields */
  const char *meaning;
  size_t bytes;
  const struct ft_argument_field *fields; /* name NULL ends */
};

extern const struct ft_argument_struct ft_argument_structs[]; /* name NULL ends */

#endif
