// ptx_reductions.h: stands where templates/parts/ptx_reductions.cu.in stands in a kernel for the
// GPU. in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void red_add(float *to, float x) {
  atomicAdd(to, x);
}
inline void red_add_4(float *to, const float (&x)[4], FE_LINE) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0)
    fe_machine->fault(line, "adds four floats at an address that is no multiple of 16");
  for (int i = 0; i < 4; i++) atomicAdd(to + i, x[i]);
}
