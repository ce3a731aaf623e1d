// ptx_e4m3_lines.h: stands where templates/parts/ptx_e4m3_lines.cu.in stands in a kernel for the
// GPU. in -> out: the same wrappers, by the same names -> numbers as the PTX manual says.
#pragma once
#include "ptx_e4m3.h"

inline unsigned fe_half_from_0(float x) {
  if (x != x) return 0x7FFF;
  return x > 0 ? fe_to_fp16(x) : 0;
}

inline unsigned halves_from_0(float low, float high) {
  return fe_half_from_0(low) | fe_half_from_0(high) << 16;
}

// fp32 has more than twice the bits of fp16: what its adder rounds before does not count.
inline unsigned add_halves(unsigned a, unsigned b) {
  return fe_to_fp16(fe_from_fp16(a & 0xFFFF) + fe_from_fp16(b & 0xFFFF)) |
         fe_to_fp16(fe_from_fp16(a >> 16) + fe_from_fp16(b >> 16)) << 16;
}

inline float sum_of_halves(unsigned pair) {
  return fe_from_fp16(pair & 0xFFFF) + fe_from_fp16(pair >> 16);
}
