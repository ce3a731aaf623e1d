// ptx_wgmma.h: stands where templates/parts/ptx_wgmma.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine.
#pragma once
#include "ptx_common.h"

typedef unsigned long long u64;

// ---- mbarriers, TMA
// --------------------------------------------------------------------------------
struct __align__(64) TensorMap {
  u64 opaque[16];
};

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

// ---- threads together
// ------------------------------------------------------------------------------
inline void barrier_sync(int id, int threads, FE_LINE) {
  fe_barrier record = {id, threads};
  fe_machine->warp(FE_BARRIER_SYNC, &record, line);
}
inline void barrier_arrive(int id, int threads, FE_LINE) {
  fe_barrier record = {id, threads};
  fe_machine->warp(FE_BARRIER_ARRIVE, &record, line);
}
template <int REGISTERS> inline void registers_release(FE_LINE) {
  int registers = REGISTERS;
  fe_machine->warpgroup(FE_REGISTERS_RELEASE, &registers, line);
}
template <int REGISTERS> inline void registers_claim(FE_LINE) {
  int registers = REGISTERS;
  fe_machine->warpgroup(FE_REGISTERS_CLAIM, &registers, line);
}

inline void stmatrix_x4(unsigned address, unsigned r0, unsigned r1, unsigned r2, unsigned r3,
                        FE_LINE) {
  fe_stmatrix record = {{r0, r1, r2, r3}, address};
  fe_machine->warp(FE_STMATRIX_X4, &record, line);
}

// ---- wgmma
// -----------------------------------------------------------------------------------------
inline void wgmma_fence(FE_LINE) {
  fe_machine->warpgroup(FE_WGMMA_FENCE, nullptr, line);
}
inline void wgmma_commit(FE_LINE) {
  fe_machine->warpgroup(FE_WGMMA_COMMIT, nullptr, line);
}
template <int YOUNGEST> inline void wgmma_wait(FE_LINE) {
  int youngest = YOUNGEST;
  fe_machine->warpgroup(FE_WGMMA_WAIT, &youngest, line);
}

// Accumulators are one array, or one of four for every eight columns; by reference, so that the
// machine sees which registers are under way.
inline void fe_wgmma_ss(float *c, int registers, u64 a, u64 b, bool across, bool accumulate,
                        int line) {
  fe_wgmma record = {c, registers, accumulate, nullptr, a, b, across, FE_BF16};
  fe_machine->warpgroup(FE_WGMMA, &record, line);
}
inline void fe_wgmma_rs(float *c, int registers, const unsigned *a, u64 b, bool accumulate,
                        int line) {
  fe_wgmma record = {c, registers, accumulate, a, 0, b, 1, FE_BF16};
  fe_machine->warpgroup(FE_WGMMA, &record, line);
}

template <int R> inline void wgmma_ss(float (&c)[R], u64 a, u64 b, bool accumulate, FE_LINE) {
  fe_wgmma_ss(c, R, a, b, false, accumulate, line);
}
template <int N> inline void wgmma_ss(float (&c)[N][4], u64 a, u64 b, bool accumulate, FE_LINE) {
  fe_wgmma_ss(c[0], 4 * N, a, b, false, accumulate, line);
}
template <int R>
inline void wgmma_ss_across(float (&c)[R], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c, R, a, b, true, accumulate, line);
}
template <int N>
inline void wgmma_ss_across(float (&c)[N][4], u64 a, u64 b, bool accumulate = true, FE_LINE) {
  fe_wgmma_ss(c[0], 4 * N, a, b, true, accumulate, line);
}
template <int R>
inline void wgmma_rs(float (&c)[R], const unsigned (&a)[4], u64 b, bool accumulate = true,
                     FE_LINE) {
  fe_wgmma_rs(c, R, a, b, accumulate, line);
}
template <int N>
inline void wgmma_rs(float (&c)[N][4], const unsigned (&a)[4], u64 b, bool accumulate = true,
                     FE_LINE) {
  fe_wgmma_rs(c[0], 4 * N, a, b, accumulate, line);
}

// A word to the compiler for the GPU.
template <int N> inline void hold(float (&)[N]) {
}
template <int N> inline void hold(float (&)[N][4]) {
}
