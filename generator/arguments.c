/* arguments.c: the structs of arguments.def as words of CUDA C.
 * in -> out: arguments.def -> ft_argument_structs. */
#include "generator/arguments.h"

#define FIELD(c_type, type, name, meaning) {type, #name, meaning},
#define STRUCT(c_name, name, alignment, meaning, fields)                                           \
  static const struct ft_argument_field c_name##_fields[] = {fields{NULL, NULL, NULL}};
#include "generator/arguments.def"
#undef STRUCT
#undef FIELD

#define STRUCT(c_name, name, alignment, meaning, fields)                                           \
  {name, alignment, meaning, sizeof(struct c_name), c_name##_fields},

const struct ft_argument_struct ft_argument_structs[] = {
#include "generator/arguments.def"
    {NULL, 0, NULL, 0, NULL}};
#undef STRUCT

_Static_assert(sizeof(struct ft_backward_params) <= 4096 &&
                   sizeof(struct ft_descaled_forward_params) <= 4096 &&
                   sizeof(struct ft_merge_params) <= 4096 &&
                   sizeof(struct ft_block_mask_params) <= 4096 &&
                   sizeof(struct ft_tiled_backward_params) <= 4096,
               "what a kernel takes as its argument");
