// ptx_signs.h: stands where templates/parts/ptx_signs.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names.
#pragma once
inline int opposite(int x) {
  return ~(x - 1);
}
inline int absolute(int x) {
  return x < 0 ? opposite(x) : x;
}
