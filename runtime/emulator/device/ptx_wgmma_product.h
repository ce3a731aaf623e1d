// ptx_wgmma_product.h: stands where templates/parts/ptx_wgmma_product.cu.in stands in a kernel for
// the GPU. in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

constexpr fe_wgmma_dtype FE_WGMMA_DTYPE = FE_BF16 ? FE_OF_BF16 : FE_OF_FP16;

// Accumulators are one array, or one of four for every eight columns; by reference, so that the
// machine sees which registers are under way.
inline void fe_wgmma_ss(float *c, int registers, u64 a, u64 b, bool a_across, bool b_across,
                        bool accumulate, int line) {
  fe_wgmma record = {c, registers, accumulate, nullptr, a, b, a_across, b_across, FE_WGMMA_DTYPE};
  fe_machine->warpgroup(FE_WGMMA, &record, line);
}
inline void fe_wgmma_rs(float *c, int registers, const unsigned *a, u64 b, bool across,
                        bool accumulate, int line) {
  fe_wgmma record = {c, registers, accumulate, a, 0, b, false, across, FE_WGMMA_DTYPE};
  fe_machine->warpgroup(FE_WGMMA, &record, line);
}

template <int R>
inline void wgmma_ss(float (&c)[R], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c, R, a, b, false, false, accumulate, line);
}
template <int N>
inline void wgmma_ss(float (&c)[N][4], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c[0], 4 * N, a, b, false, false, accumulate, line);
}
template <int R>
inline void wgmma_ss_across(float (&c)[R], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c, R, a, b, false, true, accumulate, line);
}
template <int N>
inline void wgmma_ss_across(float (&c)[N][4], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c[0], 4 * N, a, b, false, true, accumulate, line);
}
template <int R>
inline void wgmma_ss_both_across(float (&c)[R], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c, R, a, b, true, true, accumulate, line);
}
template <int N>
inline void wgmma_ss_both_across(float (&c)[N][4], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c[0], 4 * N, a, b, true, true, accumulate, line);
}
template <int R>
inline void wgmma_rs(float (&c)[R], const unsigned (&a)[4], u64 b, bool accumulate = true,
                     FE_LINE) {
  fe_wgmma_rs(c, R, a, b, false, accumulate, line);
}
template <int N>
inline void wgmma_rs(float (&c)[N][4], const unsigned (&a)[4], u64 b, bool accumulate = true,
                     FE_LINE) {
  fe_wgmma_rs(c[0], 4 * N, a, b, false, accumulate, line);
}
template <int R>
inline void wgmma_rs_across(float (&c)[R], const unsigned (&a)[4], u64 b, bool accumulate = true,
                            FE_LINE) {
  fe_wgmma_rs(c, R, a, b, true, accumulate, line);
}
template <int N>
inline void wgmma_rs_across(float (&c)[N][4], const unsigned (&a)[4], u64 b, bool accumulate = true,
                            FE_LINE) {
  fe_wgmma_rs(c[0], 4 * N, a, b, true, accumulate, line);
}
