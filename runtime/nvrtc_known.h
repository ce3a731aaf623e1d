/* nvrtc_known.h: the NVRTC that last compiled here, remembered so that it need not be opened to
 * look a kernel up: opening it takes 20 ms. in -> out: the folder of kernels.db -> version with
 * build; a compiler -> a line in the file `nvrtc` there. */
#ifndef RUNTIME_NVRTC_KNOWN_H
#define RUNTIME_NVRTC_KNOWN_H

#include <stdbool.h>

#include "runtime/compiler.h"

struct ft_nvrtc_known {
  char version[64]; /* as ft_compiler_version; "": nothing is known */
  bool present; /* the library it was read from lies where it lay, unchanged, and is the one to use
                 */
};

/* kernels: path of kernels.db, NULL for a store in memory. A file that others could have written
 * counts as none. */
struct ft_nvrtc_known ft_nvrtc_recall(const char *kernels);

/* A failure is silent: the next process opens NVRTC instead. */
void ft_nvrtc_remember(const char *kernels, const struct ft_compiler *compiler);

#endif
