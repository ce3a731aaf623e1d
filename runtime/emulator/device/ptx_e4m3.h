// ptx_e4m3.h: stands where templates/parts/ptx_e4m3.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> numbers as the PTX manual says.
#pragma once
#include "ptx_common.h"

// .rn.satfinite: nearest even, at most 448; NaN stays NaN.
inline unsigned fe_to_e4m3(float x) {
  if (x != x) return 0x7F;
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  const float size = __builtin_fabsf(x);
  if (size >= 448.f) return sign | 0x7E;
  // Below the normal numbers the spacing is 2^-9: adding 2^14 leaves just those bits, rounded by
  // the adder.
  if (size < 0x1p-6f) return sign | (__float_as_uint(size + 0x1p14f) - __float_as_uint(0x1p14f));
  const unsigned bits = __float_as_uint(size);
  return sign | ((bits + 0x7FFFFu + (bits >> 20 & 1)) - 0x3C000000u) >> 20;
}

inline unsigned pack_e4m3(float a, float b, float c, float d) {
  return fe_to_e4m3(a) | fe_to_e4m3(b) << 8 | fe_to_e4m3(c) << 16 | fe_to_e4m3(d) << 24;
}
