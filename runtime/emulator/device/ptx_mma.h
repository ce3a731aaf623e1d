// ptx_mma.h: stands where templates/parts/ptx_mma.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine; numbers as the PTX
// manual says.
#pragma once
#include "ptx_common.h"

inline void ldmatrix_x4(unsigned (&r)[4], unsigned address, FE_LINE) {
  fe_ldmatrix record = {r, address};
  fe_machine->warp(FE_LDMATRIX_X4, &record, line);
}

inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address, FE_LINE) {
  fe_ldmatrix record = {r, address};
  fe_machine->warp(FE_LDMATRIX_X4_TRANS, &record, line);
}

// By reference, so that the machine sees which registers are multiplied.
inline void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned &b0,
                         const unsigned &b1, FE_LINE) {
  fe_mma record = {c, a, {&b0, &b1}};
  fe_machine->warp(FE_BF16 ? FE_MMA_BF16 : FE_MMA_FP16, &record, line);
}

// The nearest number of 11 bits; of two the even one where kernels have .rn, else the larger
// (.rna). NaN stays NaN.
enum { FE_TF32_TO_EVEN = FE_SM >= 90 && FE_SM < 120 };

inline unsigned to_tf32(unsigned x) {
  const float value = __uint_as_float(x);
  const unsigned half = FE_TF32_TO_EVEN ? 0xFFFu + (x >> 13 & 1) : 0x1000u;
  return value != value ? 0x7FFFE000u : (x + half) & 0xFFFFE000u;
}

inline unsigned big_part(unsigned x) {
  return FE_TF32_TO_EVEN ? to_tf32(x) : (x + 0x1000u) & 0xFFFFE000u;
}

inline void mma_m16n8k8(float (&c)[4], const unsigned (&a)[4], const unsigned &b0,
                        const unsigned &b1, FE_LINE) {
  fe_mma record = {c, a, {&b0, &b1}};
  fe_machine->warp(FE_MMA_TF32, &record, line);
}

inline void mma_m16n8k32(float (&c)[4], const unsigned (&a)[4], const unsigned &b0,
                         const unsigned &b1, FE_LINE) {
  fe_mma record = {c, a, {&b0, &b1}};
  fe_machine->warp(FE_MMA_E4M3, &record, line);
}
