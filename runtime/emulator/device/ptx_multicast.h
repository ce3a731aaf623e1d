// ptx_multicast.h: stands where templates/parts/ptx_multicast.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_tma.h"

inline void tma_load_multicast(unsigned to, const TensorMap &map, unsigned barrier, int column,
                               int row, int head, int batch, unsigned blocks, FE_LINE) {
  const fe_place at = {4, {column, row, head, batch}};
  fe_machine->tma_load_multicast(to, &map, barrier, &at, blocks, line);
}
