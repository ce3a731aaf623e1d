// ptx_tma.h: stands where templates/parts/ptx_tma.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

struct __align__(64) TensorMap {
  u64 opaque[16];
};

inline void tma_load(unsigned to, const TensorMap &map, unsigned barrier, int column, int row,
                     int head, int batch, FE_LINE) {
  const fe_place at = {4, {column, row, head, batch}};
  fe_machine->tma_load(to, &map, barrier, &at, line);
}
inline void tma_store(const TensorMap &map, unsigned from, int column, int row, int head, int batch,
                      FE_LINE) {
  const fe_place at = {4, {column, row, head, batch}};
  fe_machine->tma_store(&map, from, &at, line);
}
inline void tma_store_commit(FE_LINE) {
  fe_machine->tma_store_commit(line);
}
template <int YOUNGEST> inline void tma_store_wait_read(FE_LINE) {
  fe_machine->tma_store_wait(YOUNGEST, line);
}
template <int YOUNGEST> inline void tma_store_wait(FE_LINE) {
  fe_machine->tma_store_wait(YOUNGEST, line);
}
inline void async_proxy_fence(FE_LINE) {
  fe_machine->async_proxy_fence(line);
}
