// ptx_wanted.h: stands where templates/parts/ptx_wanted.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void load_global_16_if(bool wanted, unsigned (&r)[4], const float *from, FE_LINE) {
  if (wanted) fe_machine->global_read(r, from, 16, line);
}
inline void load_global_float_if(bool wanted, float &r, const float *from, FE_LINE) {
  if (wanted) fe_machine->global_read(&r, from, 4, line);
}
