// ptx_common.h: stands where templates/parts/ptx_common.cu.in stands in a kernel for the GPU.
// in -> out: the same wrappers, by the same names -> calls of the machine. Numbers as the PTX
// manual says.
#pragma once
#if FE_FP32
typedef unsigned int element;
#else
typedef unsigned short element;
#endif
typedef unsigned long long u64;
constexpr int CHUNK = 16 / sizeof(element);

inline unsigned shared_address(const void *pointer, FE_LINE) {
  return fe_machine->shared_address(pointer, line);
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

inline float low_half(unsigned pair) {
#if FE_BF16
  return __uint_as_float(pair << 16);
#else
  return fe_from_fp16(pair & 0xFFFF);
#endif
}
inline float high_half(unsigned pair) {
#if FE_BF16
  return __uint_as_float(pair & 0xFFFF0000u);
#else
  return fe_from_fp16(pair >> 16);
#endif
}

inline unsigned prmt(unsigned a, unsigned b, unsigned choice) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned digit = choice >> 4 * i & 0xF, byte = bytes >> (digit & 7) * 8 & 0xFF;
    r |= (digit < 8 ? byte : byte < 0x80 ? 0 : 0xFF) << 8 * i;
  }
  return r;
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

template <class T> inline void pin(const T *&) {
}
