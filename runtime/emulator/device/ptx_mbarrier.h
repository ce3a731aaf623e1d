// ptx_mbarrier.h: stands where templates/parts/ptx_mbarrier.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void mbarrier_init(unsigned barrier, int arrivals, FE_LINE) {
  fe_machine->mbarrier_init(barrier, arrivals, line);
}
inline void mbarrier_init_fence(FE_LINE) {
  fe_machine->mbarrier_init_fence(line);
}
inline void mbarrier_arrive(unsigned barrier, FE_LINE) {
  fe_machine->mbarrier_arrive(barrier, 0, line);
}
inline void mbarrier_arrive_expect(unsigned barrier, unsigned bytes, FE_LINE) {
  fe_machine->mbarrier_arrive(barrier, bytes, line);
}
inline bool mbarrier_test(unsigned barrier, unsigned parity, FE_LINE) {
  return fe_machine->mbarrier_test(barrier, parity, line) != 0;
}
inline void mbarrier_wait(unsigned barrier, unsigned parity, FE_LINE) {
  fe_machine->mbarrier_wait(barrier, parity, line);
}
