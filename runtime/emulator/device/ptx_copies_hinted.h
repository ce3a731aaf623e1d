// ptx_copies_hinted.h: stands where templates/parts/ptx_copies_hinted.cu.in stands in a kernel for
// the GPU. in -> out: the same wrappers, by the same names -> calls of the machine, which has no
// L2.
#pragma once
#include "ptx_common.h"

inline u64 policy_to_stay() {
  return 1;
}
inline u64 policy_to_leave() {
  return 2;
}

inline void copy_16_by(u64 policy, unsigned to, const element *from, bool valid, FE_LINE) {
  (void)policy;
  fe_machine->copy_async(to, from, 16, valid ? 16 : 0, line);
}

inline void store_global_8_by(u64 policy, void *to, u64 value, FE_LINE) {
  (void)policy;
  fe_machine->global_write(to, &value, 8, line);
}
