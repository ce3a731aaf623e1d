// ptx_registers.h: stands where templates/parts/ptx_registers.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

template <int REGISTERS> inline void registers_release(FE_LINE) {
  int registers = REGISTERS;
  fe_machine->warpgroup(FE_REGISTERS_RELEASE, &registers, line);
}
template <int REGISTERS> inline void registers_claim(FE_LINE) {
  int registers = REGISTERS;
  fe_machine->warpgroup(FE_REGISTERS_CLAIM, &registers, line);
}
