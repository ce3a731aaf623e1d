// ptx_unset.h: stands where templates/parts/ptx_unset.cu.in stands in a kernel for the GPU.
// in -> out: variables without a value -> values that spoil every result they are used for.
#pragma once

inline void fe_spoil(float &x) {
  x = __builtin_nanf("");
}
inline void fe_spoil(int &x) {
  x = -(1 << 20);
}
template <class... Any> inline void may_be_unset(Any &...variables) {
  (fe_spoil(variables), ...);
}
