// ptx_cluster_copy.h: stands where templates/parts/ptx_cluster_copy.cu.in stands in a kernel for
// the GPU. in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void copy_to_block(unsigned to, unsigned from, unsigned bytes, unsigned barrier,
                          unsigned rank, FE_LINE) {
  fe_machine->copy_to_block(to, from, bytes, barrier, rank, line);
}
