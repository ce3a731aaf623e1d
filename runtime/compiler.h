/* compiler.h: NVRTC, opened at run time.
 * in -> out: struct ft_source -> struct ft_kernel with registers, spills, mapped log.
 * Searched in this order: FATUNE_LIBNVRTC (then nothing else), the loader's path (libnvrtc.so.13,
 * .12), the CUDA toolkit's usual folders, NVIDIA's Python wheels: of a checkout around this
 * library or program, beside its Python package, of the Python it is installed in, of the Python on
 * PATH. */
#ifndef RUNTIME_COMPILER_H
#define RUNTIME_COMPILER_H

#include "cache/kernel.h"
#include "generator/emit.h"

struct ft_compiler;

/* FT_E_NO_NVRTC lists what was tried. */
int ft_compiler_open(struct ft_compiler **compiler);
void ft_compiler_close(struct ft_compiler *compiler);

/* Release and build, "13.0.88+65be0db342ad"; no blanks. */
const char *ft_compiler_version(const struct ft_compiler *compiler);
/* The library file. */
const char *ft_compiler_path(const struct ft_compiler *compiler);

/* FT_OK when NVRTC knows the target ("sm_90"), else FT_E_UNSUPPORTED with those it knows. */
int ft_compiler_supports(const struct ft_compiler *compiler, const char *target);

/* Key of what compiling the source with this compiler gives. */
struct ft_digest ft_compiler_key(const struct ft_compiler *compiler,
                                 const struct ft_source *source);

/* Compiles; callable from many threads at once. FT_E_COMPILE has the mapped log as detail.
 * Registers and spills are read from the image itself, C75xx and spill lines of the log are kept
 * in kernel->log. */
int ft_compiler_compile(struct ft_compiler *compiler, const struct ft_source *source,
                        struct ft_kernel *kernel);

#endif
