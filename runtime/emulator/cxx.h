/* cxx.h: an emitted kernel compiled for the CPU.
 * in -> out: struct ft_source -> struct ft_kernel. */
#ifndef RUNTIME_EMULATOR_CXX_H
#define RUNTIME_EMULATOR_CXX_H

#include "cache/kernel.h"
#include "generator/emit.h"

/* Compiles an emitted kernel for the CPU. The image is native code, so it must stay in this
 * process: it is never stored. FT_E_NO_CXX when there is no C++ compiler ($FATUNE_CXX, g++,
 * clang++, c++), FT_E_COMPILE with the compiler's messages. kernel->nvrtc names the compiler; there
 * are no registers to report. */
int ft_emulator_compile(const struct ft_source *source, struct ft_kernel *kernel);

#endif
