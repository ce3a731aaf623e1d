// ptx_exchange.h: stands where templates/parts/ptx_exchange.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void barrier_sync(int id, int threads, FE_LINE) {
  fe_barrier record = {id, threads};
  fe_machine->warp(FE_BARRIER_SYNC, &record, line);
}
inline void barrier_arrive(int id, int threads, FE_LINE) {
  fe_barrier record = {id, threads};
  fe_machine->warp(FE_BARRIER_ARRIVE, &record, line);
}
inline void stmatrix_x4(unsigned address, const unsigned (&r)[4], FE_LINE) {
  fe_stmatrix record = {{r[0], r[1], r[2], r[3]}, address};
  fe_machine->warp(FE_STMATRIX_X4, &record, line);
}
inline void load_shared_8(float (&r)[2], unsigned from, FE_LINE) {
  fe_machine->shared_read(r, from, 8, line);
}
inline void load_global_16(unsigned (&r)[4], const element *from, FE_LINE) {
  fe_machine->global_read(r, from, 16, line);
}

inline float low_half(unsigned pair) {
#if FE_BF16
  return __uint_as_float(pair << 16);
#else
  return fe_from_fp16(pair & 0xFFFF);
#endif
}
inline float high_half(unsigned pair) {
#if FE_BF16
  return __uint_as_float(pair & 0xFFFF0000u);
#else
  return fe_from_fp16(pair >> 16);
#endif
}

inline unsigned prmt(unsigned a, unsigned b, unsigned choice) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (bytes >> (choice >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return r;
}

inline void red_add(float *to, float x) {
  atomicAdd(to, x);
}
inline void red_add_4(float *to, const float (&x)[4], FE_LINE) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0)
    fe_machine->fault(line, "adds four floats at an address that is no multiple of 16");
  for (int i = 0; i < 4; i++) atomicAdd(to + i, x[i]);
}
// Blocks run one after the other, so all before have released.
inline int load_acquire(const int *from, FE_LINE) {
  int x;
  fe_machine->global_read(&x, from, 4, line);
  return x;
}
inline int load_relaxed(const int *from, FE_LINE) {
  return load_acquire(from, line);
}
inline void red_add_release(int *to, int x) {
  atomicAdd(to, x);
}
