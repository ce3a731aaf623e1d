// ptx_pair_sizes.h: stands where templates/parts/ptx_pair_sizes.cu.in stands in a kernel for the
// GPU. in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline unsigned fe_larger_size(unsigned size, unsigned x) {
  constexpr unsigned INFINITE = FE_BF16 ? 0x7F80 : 0x7C00;
  x &= 0x7FFF;
  return x <= INFINITE && x > size ? x : size;
}
inline unsigned larger_sizes(unsigned sizes, unsigned x) {
  return fe_larger_size(sizes >> 16, x >> 16) << 16 | fe_larger_size(sizes & 0xFFFF, x & 0xFFFF);
}
