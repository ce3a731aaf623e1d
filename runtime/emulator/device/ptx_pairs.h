// ptx_pairs.h: stands where templates/parts/ptx_pairs.cu.in stands in a kernel for the GPU.
// in -> out: pairs of bf16 -> pairs. In fp32 a product of two is exact.
#pragma once

inline unsigned multiply_pairs(unsigned a, unsigned b) {
  return pack(low_half(a) * low_half(b), high_half(a) * high_half(b));
}
