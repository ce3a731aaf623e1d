/* object.h: code for the CPU as it travels in struct ft_kernel, and the files it is compiled with.
 */
#ifndef RUNTIME_EMULATOR_OBJECT_H
#define RUNTIME_EMULATOR_OBJECT_H

#include <stdint.h>

#include "generator/templates.h"

/* The files of runtime/emulator/device, built in; ends with a row whose name is NULL. */
extern const struct ft_template ft_emulator_files[];

/* An image is this, then `bytes` bytes of a shared object. */
struct ft_emulator_image {
  char magic[8];
  uint64_t bytes;
};
#define FT_EMULATOR_MAGIC "ftcpu\0\0" /* and its NUL */

#endif
