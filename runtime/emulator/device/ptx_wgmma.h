// ptx_wgmma.h: stands where templates/parts/ptx_wgmma.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void wgmma_fence(FE_LINE) {
  fe_machine->warpgroup(FE_WGMMA_FENCE, nullptr, line);
}
inline void wgmma_commit(FE_LINE) {
  fe_machine->warpgroup(FE_WGMMA_COMMIT, nullptr, line);
}
template <int YOUNGEST> inline void wgmma_wait(FE_LINE) {
  int youngest = YOUNGEST;
  fe_machine->warpgroup(FE_WGMMA_WAIT, &youngest, line);
}

// A word to the compiler for the GPU.
template <int N> inline void hold(float (&)[N]) {
}
template <int N> inline void hold(float (&)[N][4]) {
}
