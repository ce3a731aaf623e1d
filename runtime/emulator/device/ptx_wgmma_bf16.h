// ptx_wgmma_bf16.h: stands where templates/parts/ptx_wgmma_bf16.cu.in stands in a kernel for the
// GPU. in -> out: the same wrapper, by the same name -> a call of the machine.
#pragma once
#include "ptx_common.h"

template <int N>
inline void wgmma_rs_bf16(float (&c)[N][4], const unsigned (&a)[4], u64 b, FE_LINE) {
  fe_wgmma record = {c[0], 4 * N, true, a, 0, b, false, false, FE_OF_BF16};
  fe_machine->warpgroup(FE_WGMMA, &record, line);
}
