// ptx_multicast_5d.h: stands where templates/parts/ptx_multicast_5d.cu.in stands for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_tma.h"

inline void tma_load_multicast_5d(unsigned to, const TensorMap &map, unsigned barrier, int column,
                                  int member, int row, int pack, int batch, unsigned blocks,
                                  FE_LINE) {
  const fe_place at = {5, {column, member, row, pack, batch}};
  fe_machine->tma_load_multicast(to, &map, barrier, &at, blocks, line);
}
