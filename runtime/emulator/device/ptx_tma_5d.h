// ptx_tma_5d.h: stands where templates/parts/ptx_tma_5d.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_tma.h"

inline void tma_load_5d(unsigned to, const TensorMap &map, unsigned barrier, int column, int member,
                        int row, int pack, int batch, FE_LINE) {
  const fe_place at = {5, {column, member, row, pack, batch}};
  fe_machine->tma_load(to, &map, barrier, &at, line);
}
inline void tma_store_5d(const TensorMap &map, unsigned from, int column, int member, int row,
                         int pack, int batch, FE_LINE) {
  const fe_place at = {5, {column, member, row, pack, batch}};
  fe_machine->tma_store(&map, from, &at, line);
}
