// ptx_cluster_reads.h: stands where templates/parts/ptx_cluster_reads.cu.in stands in a kernel for
// the GPU. in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline float load_cluster_4(unsigned from, unsigned rank, FE_LINE) {
  float x;
  fe_machine->cluster_read(&x, from, 4, rank, line);
  return x;
}

inline void load_cluster_16(unsigned (&r)[4], unsigned from, unsigned rank, FE_LINE) {
  fe_machine->cluster_read(r, from, 16, rank, line);
}
