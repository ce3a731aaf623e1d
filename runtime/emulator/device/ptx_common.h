// ptx_common.h: the wrappers that all families of kernels have.
// in -> out: wrappers, by the names they have in the PTX parts -> calls of the machine. Numbers as
// the PTX manual says.
#pragma once
typedef unsigned short element;

inline unsigned shared_address(const void *pointer, FE_LINE) {
  return fe_machine->shared_address(pointer, line);
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
inline float rcp(float x) {
  return fe_flush(1.f / fe_flush(x));
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
