// ptx_order.h: stands where templates/parts/ptx_order.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

// Blocks run one after the other, so all before have released.
inline int load_acquire(const int *from, FE_LINE) {
  int x;
  fe_machine->global_read(&x, from, 4, line);
  return x;
}
inline int load_relaxed(const int *from, FE_LINE) {
  return load_acquire(from, line);
}
inline void red_add_release(int *to, int x, FE_LINE) {
  fe_machine->release(line);
  atomicAdd(to, x);
}
