// cuda.h: the CUDA C that emitted kernels are written in, for a C++ compiler.
// in -> out: CUDA's words and built-in functions -> calls of the machine (machine.h).
// No standard header: emitted text needs none, and a compile stays short. A function that can fail
// takes the line it is called from as its last argument, by default the caller's.
#pragma once
#include "machine.h"

extern "C" {
struct fe_machine *fe_machine;
alignas(1024) unsigned char shared[FE_SHARED_MOST];
}

#define __global__
#define __device__
#define __host__
#define __shared__
#define __constant__ const
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict

// Stands between `void` and the kernel's name: declares an overload that entry.h prefers and then
// begins the kernel anew.
#define __cluster_dims__(x, y, z)                                                                  \
  fe_has_clusters();                                                                               \
  static_assert(FE_SM >= 90 && (x) >= 1 && (x) <= 16 && ((x) & ((x)-1)) == 0 && (y) == 1 &&        \
                    (z) == 1,                                                                      \
                "clusters are emulated for sm_90, of 1, 2, 4, 8 and 16 blocks in x");              \
  constexpr int fe_cluster_size(int) {                                                             \
    return x;                                                                                      \
  }                                                                                                \
  extern "C" void
constexpr int fe_cluster_size(...) {
  return 1;
}

// What the machine changes behind the kernel's back is read without the compiler's instrumentation.
#if defined(__clang__)
#define FE_PLAIN                                                                                   \
  __attribute__((noinline, no_sanitize("thread", "address", "undefined", "coverage")))
#else
#define FE_PLAIN                                                                                   \
  __attribute__((noinline, no_sanitize("thread", "address", "undefined"), no_sanitize_coverage))
#endif

// For what is inlined into the above.
#if defined(__clang__)
#define FE_INLINE_PLAIN __attribute__((no_sanitize("thread", "address", "undefined", "coverage")))
#else
#define FE_INLINE_PLAIN                                                                            \
  __attribute__((no_sanitize("thread", "address", "undefined"), no_sanitize_coverage))
#endif

FE_PLAIN static const fe_here &fe_here_now() {
  return fe_machine->here;
}
FE_PLAIN static fe_index fe_thread_index() {
  return fe_here_now().thread;
}
FE_PLAIN static fe_index fe_block_index() {
  return fe_here_now().block;
}
FE_PLAIN static fe_index fe_block_size() {
  return fe_here_now().block_size;
}
FE_PLAIN static fe_index fe_grid_size() {
  return fe_here_now().grid;
}
#define threadIdx (fe_thread_index())
#define blockIdx  (fe_block_index())
#define blockDim  (fe_block_size())
#define gridDim   (fe_grid_size())

#define FE_LINE int line = __builtin_LINE()

// ---- bits and numbers
// ----------------------------------------------------------------------------
inline float __int_as_float(int x) {
  return __builtin_bit_cast(float, x);
}
inline float __uint_as_float(unsigned x) {
  return __builtin_bit_cast(float, x);
}
inline int __float_as_int(float x) {
  return __builtin_bit_cast(int, x);
}
inline unsigned __float_as_uint(float x) {
  return __builtin_bit_cast(unsigned, x);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (bits & 31));
}

// The operand that is a number, where one is not.
inline float fe_max(float a, float b) {
  return a > b || b != b ? a : b;
}
inline float fe_min(float a, float b) {
  return a < b || b != b ? a : b;
}
#define fmaxf fe_max
#define fminf fe_min
#define fabsf __builtin_fabsf
#define fmaf  __builtin_fmaf
template <class T> inline T min(T a, T b) {
  return b < a ? b : a;
}
template <class T> inline T max(T a, T b) {
  return a < b ? b : a;
}

inline int abs(int x) {
  return x < 0 ? -x : x;
}

// Rounded down; beyond 32 bits the nearest integer, 0 for NaN.
inline int __float2int_rd(float x) {
  if (!(x >= -0x1p31f)) return x == x ? -0x7FFFFFFF - 1 : 0;
  if (x >= 0x1p31f) return 0x7FFFFFFF;
  const int whole = static_cast<int>(x);
  return static_cast<float>(whole) > x ? whole - 1 : whole;
}

// To the nearest, even ones among equals; beyond 64 bits what a GPU makes of it.
inline long long __float2ll_rn(float x) {
  if (!(x >= -0x1p63f)) return x == x ? -0x7FFFFFFFFFFFFFFF - 1 : -0x7FFFFFFFFFFFFFFF - 1;
  if (x >= 0x1p63f) return 0x7FFFFFFFFFFFFFFF;
  return static_cast<long long>(__builtin_rintf(x));
}

inline float fe_flush(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.f, x) : x;
}

inline float fe_from_fp16(unsigned bits) {
  const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7FFFu;
  if (rest >= 0x7C00u) return __uint_as_float(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
  if (rest < 0x400u)
    return __uint_as_float(sign | __float_as_uint(static_cast<float>(rest) * 0x1p-24f));
  return __uint_as_float(sign | ((rest << 13) + 0x38000000u));
}

// Round to nearest even; NaN becomes 0x7FFF, as cvt.rn makes it.
inline unsigned fe_to_bf16(float x) {
  if (x != x) return 0x7FFF;
  const unsigned bits = __float_as_uint(x);
  return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}

inline unsigned fe_to_fp16(float x) {
  if (x != x) return 0x7FFF;
  const unsigned sign = __float_as_uint(x) >> 16 & 0x8000u;
  const float size = __builtin_fabsf(x);
  if (size >= 65520.f) return sign | 0x7C00u; // halfway to 2^16 and beyond
  // Below the normal numbers the spacing is 2^-24: adding 1/2 leaves just those bits, rounded by
  // the adder.
  if (size < 0x1p-14f) return sign | (__float_as_uint(size + 0.5f) - __float_as_uint(0.5f));
  const unsigned bits = __float_as_uint(size);
  return sign | ((bits + 0xFFFu + (bits >> 13 & 1)) - 0x38000000u) >> 13;
}

// ---- threads together
// ------------------------------------------------------------------------------
inline void __syncthreads(FE_LINE) {
  fe_machine->barrier(line);
}

inline void fe_whole_warp(unsigned mask, int line) {
  if (mask != 0xFFFFFFFFu)
    fe_machine->fault(line, "names a part of the warp; only the mask 0xffffffff is emulated");
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, FE_LINE) {
  fe_whole_warp(mask, line);
  fe_machine->warp(FE_SYNCWARP, nullptr, line);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = FE_WARP, FE_LINE) {
  static_assert(sizeof(T) == 4, "32-bit values are emulated");
  fe_whole_warp(mask, line);
  if (width != FE_WARP || lanes < 0 || lanes >= FE_WARP)
    fe_machine->fault(line, "shuffles beyond the warp");
  fe_shuffle shuffle = {__builtin_bit_cast(unsigned, value), static_cast<unsigned>(lanes)};
  fe_machine->warp(FE_SHUFFLE_XOR, &shuffle, line);
  return __builtin_bit_cast(T, shuffle.value);
}

// Each lane names the lane whose value it takes.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = FE_WARP, FE_LINE) {
  if (lane < 0 || lane >= FE_WARP) fe_machine->fault(line, "shuffles beyond the warp");
  const int own = static_cast<int>(fe_here_now().thread.x % FE_WARP);
  return __shfl_xor_sync(mask, value, own ^ lane, width, line);
}

inline int __any_sync(unsigned mask, int predicate, FE_LINE) {
  fe_whole_warp(mask, line);
  fe_shuffle vote = {predicate != 0, 0};
  fe_machine->warp(FE_VOTE_ANY, &vote, line);
  return static_cast<int>(vote.value);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, FE_LINE) {
  fe_whole_warp(mask, line);
  fe_shuffle vote = {predicate != 0 ? 1u << fe_here_now().thread.x % FE_WARP : 0, 0};
  fe_machine->warp(FE_REDUCE_OR, &vote, line);
  return vote.value;
}

inline int __all_sync(unsigned mask, int predicate, FE_LINE) {
  return !__any_sync(mask, !predicate, line);
}

// ---- atomics: threads change only at primitives, so checking is all there is to do
// ------------------
template <class T> FE_PLAIN T fe_atomic(T *address, T (*change)(T, T), T operand) {
  fe_machine->access(address, sizeof(T), FE_ATOMIC);
  const T old = *address;
  *address = change(old, operand);
  return old;
}
template <class T> inline T atomicAdd(T *address, T operand) {
  return fe_atomic<T>(
      address, [](T a, T b) { return a + b; }, operand);
}
template <class T> inline T atomicMax(T *address, T operand) {
  return fe_atomic<T>(
      address, [](T a, T b) { return a < b ? b : a; }, operand);
}
template <class T> inline T atomicMin(T *address, T operand) {
  return fe_atomic<T>(
      address, [](T a, T b) { return b < a ? b : a; }, operand);
}
template <class T> inline T atomicExch(T *address, T operand) {
  return fe_atomic<T>(
      address, [](T, T b) { return b; }, operand);
}
