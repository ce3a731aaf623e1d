// ptx_dependent.h: stands where templates/parts/ptx_dependent.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names; grids run one after the other.
#pragma once
#include "ptx_common.h"

inline void next_grid_may_begin() {
}
inline void wait_for_grid_before() {
}
