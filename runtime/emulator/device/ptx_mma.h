// ptx_mma.h: stands where templates/parts/ptx_mma.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine. Numbers as the PTX
// manual says.
#pragma once
typedef unsigned short element;

inline unsigned shared_address(const void *pointer, FE_LINE) {
  return fe_machine->shared_address(pointer, line);
}

inline void ldmatrix_x4(unsigned (&r)[4], unsigned address, FE_LINE) {
  fe_ldmatrix record = {r, address};
  fe_machine->warp(FE_LDMATRIX_X4, &record, line);
}

inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address, FE_LINE) {
  fe_ldmatrix record = {r, address};
  fe_machine->warp(FE_LDMATRIX_X4_TRANS, &record, line);
}

// By reference, so that the machine sees which registers are multiplied.
inline void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned &b0,
                         const unsigned &b1, FE_LINE) {
  fe_mma record = {c, a, {&b0, &b1}};
  fe_machine->warp(FE_BF16 ? FE_MMA_BF16 : FE_MMA_FP16, &record, line);
}

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

inline void store_shared_4(unsigned to, unsigned value, FE_LINE) {
  fe_machine->shared_write(to, &value, 4, line);
}
inline void load_shared_16(unsigned (&r)[4], unsigned from, FE_LINE) {
  fe_machine->shared_read(r, from, 16, line);
}
inline void store_global_16(element *to, const unsigned (&r)[4], FE_LINE) {
  fe_machine->global_write(to, r, 16, line);
}

// .ftz: denormal numbers count as zero, coming and going.
inline float ex2(float x) {
  return fe_flush(__builtin_exp2f(fe_flush(x)));
}
inline float lg2(float x) {
  return fe_flush(__builtin_log2f(fe_flush(x)));
}

inline unsigned pack(float low, float high) {
#if FE_BF16
  return fe_to_bf16(low) | fe_to_bf16(high) << 16;
#else
  return fe_to_fp16(low) | fe_to_fp16(high) << 16;
#endif
}

inline unsigned halves_ge(unsigned a, unsigned b) {
  const bool low = fe_from_fp16(a & 0xFFFF) >= fe_from_fp16(b & 0xFFFF);
  const bool high = fe_from_fp16(a >> 16) >= fe_from_fp16(b >> 16);
  return (low ? 0x0000FFFFu : 0) | (high ? 0xFFFF0000u : 0);
}

inline unsigned uniform(unsigned x, FE_LINE) {
#if FE_SM >= 80
  fe_shuffle reduction = {x, 0};
  fe_machine->warp(FE_REDUCE_OR, &reduction, line);
  return reduction.value;
#else
  return x;
#endif
}

inline void pin(unsigned &) {
}
