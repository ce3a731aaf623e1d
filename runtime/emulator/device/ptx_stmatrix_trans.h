// ptx_stmatrix_trans.h: stands where templates/parts/ptx_stmatrix_trans.cu.in stands for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void stmatrix_x4_trans(unsigned address, const unsigned (&r)[4], FE_LINE) {
  fe_stmatrix record = {{r[0], r[1], r[2], r[3]}, address};
  fe_machine->warp(FE_STMATRIX_X4_TRANS, &record, line);
}
