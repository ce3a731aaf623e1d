/* object.h: the parts of turning emitted text into code for the CPU; nobody else includes this.
 * in -> out: text -> C++ compiler, found and run -> image -> loaded code. */
#ifndef RUNTIME_EMULATOR_OBJECT_H
#define RUNTIME_EMULATOR_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/templates.h"
#include "generator/text.h"

/* The files of runtime/emulator/device, built in; ends with a row whose name is NULL. */
extern const struct ft_template ft_emulator_files[];

/* An image is this, then `bytes` bytes of a shared object. */
struct ft_emulator_image {
  char magic[8];
  uint64_t bytes;
};
#define FT_EMULATOR_MAGIC "ftcpu\0\0" /* and its NUL */

/* cxx_search.c: the compiler to use. FT_E_NO_CXX says what was tried. */
struct ft_cxx {
  char path[512]; /* absolute */
  char name[64];  /* "g++ 12.2.0" */
  bool clang;
};
int ft_cxx_find(struct ft_cxx *cxx);

/* child.c: runs a program to its end, without a shell and with nothing to read. arguments: the
 * program first, a path or a name on PATH, NULL last. folder: where it runs, NULL: here. What it
 * writes is added to output. *code: what it exited with, or the signal that ended it, negative. */
int ft_child_run(const char *const *arguments, const char *folder, struct ft_text *output,
                 int *code);

#endif
