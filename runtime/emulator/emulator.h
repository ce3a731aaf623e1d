/* emulator.h: a GPU emulated on the CPU, as a driver like another.
 * in -> out: struct ft_arch -> struct ft_driver whose functions emulate; struct ft_source -> a
 * kernel the CPU runs. Memory of the emulated GPU is memory of the process. Everything is done when
 * the call returns: streams and events exist but there is nothing to wait for and no time to tell.
 * A fault of a kernel is the error of its launch, with what happened and where. */
#ifndef RUNTIME_EMULATOR_EMULATOR_H
#define RUNTIME_EMULATOR_EMULATOR_H

#include "cache/kernel.h"
#include "generator/emit.h"
#include "runtime/driver.h"

/* Fills the table; *ordinal is the emulated GPU with arch's name and limits. Nothing to close. */
int ft_emulator_open(struct ft_driver *driver, const struct ft_arch *arch, int *ordinal);

/* Compiles an emitted kernel for the CPU. The image is native code, so it must stay in this
 * process: it is never stored. FT_E_NO_CXX when there is no C++ compiler ($FATUNE_CXX, g++,
 * clang++, c++), FT_E_COMPILE with the compiler's messages. kernel->nvrtc names the compiler; there
 * are no registers to report. */
int ft_emulator_compile(const struct ft_source *source, struct ft_kernel *kernel);

/* The C++ text that is compiled: the emitted lines as they are, but those of templates/parts/ptx_*,
 * in whose place the part of the same name from runtime/emulator/device stands. FT_E_UNSUPPORTED
 * where there is none of that name. */
int ft_emulator_text(const struct ft_source *source, struct ft_text *text);

/* The compiler that would be used: "g++ 12.2.0" and its file, or FT_E_NO_CXX saying what was tried.
 */
int ft_emulator_compiler(char name[64], char path[512]);

/* What a launch may touch: elements address + (sum of index * stride) * element_bytes and nothing
 * between them. Extents and strides by dimension: batch, row, head, column. */
enum { FT_TENSOR_DIMS = 4, FT_TENSORS_MOST = 24 };
struct ft_emulated_tensor {
  const char *name; /* "K"; static */
  uint64_t address;
  int element_bytes;
  int64_t extents[FT_TENSOR_DIMS], strides[FT_TENSOR_DIMS]; /* strides in elements */
  bool writable;
  int packed_heads; /* whose rows stand beside each other in tiles; 0: as 1, each for itself */
};

/* Describes the arguments of this thread's next launch; at most FT_TENSORS_MOST. Memory in no
 * tensor may be used if it was allocated through the driver and does not hold a tensor. */
void ft_emulator_expect(const struct ft_emulated_tensor *tensors, int count);

#endif
