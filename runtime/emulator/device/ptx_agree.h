// ptx_agree.h: stands where templates/parts/ptx_agree.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline bool barrier_all(int id, int threads, bool agrees, FE_LINE) {
  fe_barrier record = {id, threads, agrees};
  fe_machine->warp(FE_BARRIER_SYNC, &record, line);
  return record.agrees != 0;
}
