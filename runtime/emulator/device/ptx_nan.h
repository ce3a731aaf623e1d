// ptx_nan.h: stands where templates/parts/ptx_nan.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names.
#pragma once
inline float max_nan(float a, float b) {
  return a > b || a != a ? a : b;
}
