// ptx_cluster.h: stands where templates/parts/ptx_cluster.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_mbarrier.h"

FE_PLAIN static unsigned cluster_rank() {
  return fe_here_now().rank;
}

inline void cluster_sync(FE_LINE) {
  fe_machine->warp(FE_CLUSTER_SYNC, nullptr, line);
}

inline void mbarrier_arrive_at(unsigned barrier, unsigned rank, FE_LINE) {
  fe_machine->mbarrier_arrive_at(barrier, rank, line);
}

inline void cluster_meet(FE_LINE) {
  fe_machine->warp(FE_CLUSTER_SYNC, nullptr, line);
}
