// ptx_e4m3_pairs.h: stands where templates/parts/ptx_e4m3_pairs.cu.in stands in a kernel for the
// GPU. in -> out: the same wrappers, by the same names -> calls of the machine; numbers as the PTX
// manual says.
#pragma once
#include "ptx_mma.h"

// As two matrices, each twice: the upper lanes give the addresses of the lower ones.
inline void ldmatrix_x2(unsigned (&r)[2], unsigned address, FE_LINE) {
  unsigned four[4];
  ldmatrix_x4(four, address, line);
  r[0] = four[0];
  r[1] = four[1];
}

inline void ldmatrix_x2_trans(unsigned (&r)[2], unsigned address, FE_LINE) {
  unsigned four[4];
  ldmatrix_x4_trans(four, address, line);
  r[0] = four[0];
  r[1] = four[1];
}

inline void copy_4(unsigned to, const element *from, bool valid, FE_LINE) {
  fe_machine->copy_async(to, from, 4, valid ? 4 : 0, line);
}

inline float fe_from_e4m3(unsigned byte) {
  const float sign = byte & 0x80u ? -1.f : 1.f;
  const unsigned exponent = byte >> 3 & 15u, fraction = byte & 7u;
  if (exponent == 15u && fraction == 7u) return __uint_as_float(0x7FFFFFFFu);
  if (exponent == 0) return sign * static_cast<float>(fraction) * 0x1p-9f;
  return sign * __uint_as_float((exponent + 120u) << 23 | fraction << 20);
}

inline void numbers_of_e4m3(float (&x)[4], unsigned four) {
  for (int i = 0; i < 4; i++) x[i] = fe_from_e4m3(four >> 8 * i & 0xFFu);
}

inline void halves_of_e4m3(unsigned &first, unsigned &second, unsigned four) {
  float x[4];
  numbers_of_e4m3(x, four);
  first = fe_to_fp16(x[0]) | fe_to_fp16(x[1]) << 16;
  second = fe_to_fp16(x[2]) | fe_to_fp16(x[3]) << 16;
}

inline unsigned multiply_pair(unsigned a, unsigned b) {
  return pack(low_half(a) * low_half(b), high_half(a) * high_half(b));
}
