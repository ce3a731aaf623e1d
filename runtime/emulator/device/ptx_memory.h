// ptx_memory.h: stands where templates/parts/ptx_memory.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void store_shared_4(unsigned to, unsigned value, FE_LINE) {
  fe_machine->shared_write(to, &value, 4, line);
}
inline float load_shared_float(unsigned from, FE_LINE) {
  float x;
  fe_machine->shared_read(&x, from, 4, line);
  return x;
}
inline void store_shared_16(unsigned to, const float (&r)[4], FE_LINE) {
  fe_machine->shared_write(to, r, 16, line);
}
inline void store_shared_8(unsigned to, const float (&r)[2], FE_LINE) {
  fe_machine->shared_write(to, r, 8, line);
}
inline void load_shared_16(unsigned (&r)[4], unsigned from, FE_LINE) {
  fe_machine->shared_read(r, from, 16, line);
}
inline void store_global_16(element *to, const unsigned (&r)[4], FE_LINE) {
  fe_machine->global_write(to, r, 16, line);
}
inline void load_shared_8(float (&r)[2], unsigned from, FE_LINE) {
  fe_machine->shared_read(r, from, 8, line);
}
inline void load_global_16(unsigned (&r)[4], const element *from, FE_LINE) {
  fe_machine->global_read(r, from, 16, line);
}
