// ptx_cluster.h: stands where templates/parts/ptx_cluster.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_mbarrier.h"
#include "ptx_tma.h"

FE_PLAIN static unsigned cluster_rank() {
  return fe_here_now().rank;
}

inline void cluster_sync(FE_LINE) {
  fe_machine->warp(FE_CLUSTER_SYNC, nullptr, line);
}

inline void mbarrier_arrive_at(unsigned barrier, unsigned rank, FE_LINE) {
  fe_machine->mbarrier_arrive_at(barrier, rank, line);
}

inline void tma_load_multicast(unsigned to, const TensorMap &map, unsigned barrier, int column,
                               int row, int head, int batch, unsigned blocks, FE_LINE) {
  const fe_place at = {4, {column, row, head, batch}};
  fe_machine->tma_load_multicast(to, &map, barrier, &at, blocks, line);
}
