// ptx_barriers.h: stands where templates/parts/ptx_barriers.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void barrier_sync(int id, int threads, FE_LINE) {
  fe_barrier record = {id, threads, 1};
  fe_machine->warp(FE_BARRIER_SYNC, &record, line);
}
inline void barrier_arrive(int id, int threads, FE_LINE) {
  fe_barrier record = {id, threads, 1};
  fe_machine->warp(FE_BARRIER_ARRIVE, &record, line);
}
