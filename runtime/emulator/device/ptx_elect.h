// ptx_elect.h: stands where templates/parts/ptx_elect.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline bool elect_one(FE_LINE) {
  fe_machine->warp(FE_SYNCWARP, nullptr, line);
  return fe_here_now().thread.x % FE_WARP == 0;
}
