// ptx_copies.h: stands where templates/parts/ptx_copies.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

inline void copy_16(unsigned to, const element *from, bool valid, FE_LINE) {
#if FE_SM >= 80
  fe_machine->copy_async(to, from, 16, valid ? 16 : 0, line);
#else
  unsigned r[4] = {0, 0, 0, 0};
  if (valid) fe_machine->global_read(r, from, 16, line);
  fe_machine->shared_write(to, r, 16, line);
#endif
}

inline void commit_copies(FE_LINE) {
#if FE_SM >= 80
  fe_machine->copy_commit(line);
#endif
}

template <int YOUNGEST> inline void wait_copies(FE_LINE) {
#if FE_SM >= 80
  fe_machine->copy_wait(YOUNGEST, line);
#endif
}
