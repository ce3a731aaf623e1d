// ptx_bulk.h: stands where templates/parts/ptx_bulk.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void bulk_load(unsigned to, const float *from, unsigned bytes, unsigned barrier, FE_LINE) {
  fe_machine->bulk_load(to, from, bytes, barrier, line);
}
inline void global_proxy_fence() {
} // TMA stores and additions take place in the order of blocks
inline void bulk_add(float *to, unsigned from, unsigned bytes, FE_LINE) {
  fe_machine->bulk_add(to, from, bytes, line);
}
