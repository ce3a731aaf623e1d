// ptx_wgmma_e4m3.h: stands where templates/parts/ptx_wgmma_e4m3.cu.in stands in a kernel for the
// GPU. in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

template <int N>
inline void wgmma_ss(float (&c)[N][4], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma record = {c[0], 4 * N, accumulate, nullptr, a, b, false, false, FE_OF_E4M3};
  fe_machine->warpgroup(FE_WGMMA, &record, line);
}
template <int N>
inline void wgmma_rs(float (&c)[N][4], const unsigned (&a)[4], u64 b, bool accumulate = true,
                     FE_LINE) {
  fe_wgmma record = {c[0], 4 * N, accumulate, a, 0, b, false, false, FE_OF_E4M3};
  fe_machine->warpgroup(FE_WGMMA, &record, line);
}
