// ptx_halves.h: stands where templates/parts/ptx_halves.cu.in stands in a kernel for the GPU.
// in -> out: the same wrapper, by the same name -> a call of the machine.
#pragma once
#include "ptx_common.h"

inline void store_shared_2(unsigned to, unsigned value, FE_LINE) {
  const unsigned short half = static_cast<unsigned short>(value);
  fe_machine->shared_write(to, &half, 2, line);
}
