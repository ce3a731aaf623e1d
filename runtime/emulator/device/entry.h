// entry.h: the end of every emulated kernel: what it exports, and where the compiler's
// instrumentation leads. in -> out: FE_KERNELS, fe_origins -> fatune_emulated; __tsan_*,
// __sanitizer_cov_* -> the machine. The names of the hooks are those that GCC and Clang call under
// -fsanitize=thread; no runtime of theirs is linked. A build under AddressSanitizer has that in
// place of -fsanitize=thread, and the hooks stay unused.
#pragma once
#include "machine.h"

#define FE_HOOK extern "C" FE_PLAIN void

#if defined(__clang__)
enum { FE_CLANG = 1 };
#else
enum { FE_CLANG = 0 };
#endif

// Before the first launch, as the object is loaded, there is no machine.
FE_HOOK __sanitizer_cov_trace_pc() {
  if (fe_machine && fe_machine->steps_left-- == 0) fe_machine->step();
}

FE_INLINE_PLAIN static inline unsigned long long fe_pair(const unsigned char *address) {
  return *reinterpret_cast<const unsigned long long *>(reinterpret_cast<uintptr_t>(address) &
                                                       ~uintptr_t{7});
}

// Whether what is read of the stack must not be read: a word as the compiler filled it where no
// value was given, or accumulators under way (machine.h). The other word of its eight bytes is so,
// too: one alone may be chance. Larger reads copy structs, holes and all.
FE_INLINE_PLAIN static inline bool fe_no_value(const unsigned char *address, int bytes) {
  const unsigned long long pair = fe_pair(address);
  if (pair == FE_UNDER_WAY * 0x0000000100000001ull) return true;
  const unsigned long long byte = FE_CLANG ? FE_UNWRITTEN_CLANG : FE_UNWRITTEN_GCC;
  return bytes == 4 && pair == byte * 0x0101010101010101ull;
}

// Most of what a kernel touches by plain loads and stores is its registers, which live in its stack
// here.
FE_INLINE_PLAIN static inline void fe_plain(const void *at, int bytes, fe_access access) {
  const unsigned char *const address = static_cast<const unsigned char *>(at);
  if (!fe_machine) return;
  const bool registers =
      static_cast<uint64_t>(address - fe_machine->stack) < fe_machine->stack_bytes;
  if (registers && (access != FE_READ || bytes < 4 || !fe_no_value(address, bytes))) return;
  fe_machine->access(at, bytes, access);
}

#if !defined(FE_ADDRESS_SANITIZER)
// What the hooks pass on: every size, read and written.
#define FE_ACCESS_HOOKS(bytes)                                                                     \
  FE_HOOK __tsan_read##bytes(void *at) {                                                           \
    fe_plain(at, bytes, FE_READ);                                                                  \
  }                                                                                                \
  FE_HOOK __tsan_write##bytes(void *at) {                                                          \
    fe_plain(at, bytes, FE_WRITE);                                                                 \
  }                                                                                                \
  FE_HOOK __tsan_unaligned_read##bytes(void *at) {                                                 \
    fe_plain(at, bytes, FE_READ);                                                                  \
  }                                                                                                \
  FE_HOOK __tsan_unaligned_write##bytes(void *at) {                                                \
    fe_plain(at, bytes, FE_WRITE);                                                                 \
  }                                                                                                \
  FE_HOOK __tsan_volatile_read##bytes(void *at) {                                                  \
    fe_plain(at, bytes, FE_READ);                                                                  \
  }                                                                                                \
  FE_HOOK __tsan_volatile_write##bytes(void *at) {                                                 \
    fe_plain(at, bytes, FE_WRITE);                                                                 \
  }                                                                                                \
  FE_HOOK __tsan_unaligned_volatile_read##bytes(void *at) {                                        \
    fe_plain(at, bytes, FE_READ);                                                                  \
  }                                                                                                \
  FE_HOOK __tsan_unaligned_volatile_write##bytes(void *at) {                                       \
    fe_plain(at, bytes, FE_WRITE);                                                                 \
  }                                                                                                \
  FE_HOOK __tsan_read_write##bytes(void *at) {                                                     \
    fe_plain(at, bytes, FE_READ);                                                                  \
    fe_plain(at, bytes, FE_WRITE);                                                                 \
  }                                                                                                \
  FE_HOOK __tsan_unaligned_read_write##bytes(void *at) {                                           \
    fe_plain(at, bytes, FE_READ);                                                                  \
    fe_plain(at, bytes, FE_WRITE);                                                                 \
  }
FE_ACCESS_HOOKS(1)
FE_ACCESS_HOOKS(2)
FE_ACCESS_HOOKS(4)
FE_ACCESS_HOOKS(8)
FE_ACCESS_HOOKS(16)

FE_HOOK __tsan_read_range(void *at, __SIZE_TYPE__ bytes) {
  fe_plain(at, static_cast<int>(bytes), FE_READ);
}
FE_HOOK __tsan_write_range(void *at, __SIZE_TYPE__ bytes) {
  fe_plain(at, static_cast<int>(bytes), FE_WRITE);
}
FE_HOOK __tsan_init() {
}
FE_HOOK __tsan_func_entry(void *) {
}
FE_HOOK __tsan_func_exit() {
}
FE_HOOK __tsan_vptr_read(void **at) {
  fe_plain(at, sizeof *at, FE_READ);
}
FE_HOOK __tsan_vptr_update(void **at, void *) {
  fe_plain(at, sizeof *at, FE_WRITE);
}

// Clang's, for what it makes of copies and fills of memory.
extern "C" FE_PLAIN void *__tsan_memcpy(void *to, const void *from, __SIZE_TYPE__ bytes) {
  fe_plain(from, static_cast<int>(bytes), FE_READ);
  fe_plain(to, static_cast<int>(bytes), FE_WRITE);
  return __builtin_memcpy(to, from, bytes);
}
extern "C" FE_PLAIN void *__tsan_memmove(void *to, const void *from, __SIZE_TYPE__ bytes) {
  fe_plain(from, static_cast<int>(bytes), FE_READ);
  fe_plain(to, static_cast<int>(bytes), FE_WRITE);
  return __builtin_memmove(to, from, bytes);
}
extern "C" FE_PLAIN void *__tsan_memset(void *to, int value, __SIZE_TYPE__ bytes) {
  fe_plain(to, static_cast<int>(bytes), FE_WRITE);
  return __builtin_memset(to, value, bytes);
}

// The compiler's own atomics. Threads change only at primitives: plain loads and stores are atomic
// here.
#define FE_ATOMIC_HOOKS(bits, type)                                                                \
  extern "C" FE_PLAIN type __tsan_atomic##bits##_load(const volatile type *at, int) {              \
    fe_plain(const_cast<const type *>(at), sizeof *at, FE_ATOMIC);                                 \
    return *at;                                                                                    \
  }                                                                                                \
  FE_HOOK __tsan_atomic##bits##_store(volatile type *at, type value, int) {                        \
    fe_plain(const_cast<type *>(at), sizeof *at, FE_ATOMIC);                                       \
    *at = value;                                                                                   \
  }                                                                                                \
  FE_ATOMIC_UPDATE_HOOK(bits, type, exchange, value)                                               \
  FE_ATOMIC_UPDATE_HOOK(bits, type, fetch_add, old + value)                                        \
  FE_ATOMIC_UPDATE_HOOK(bits, type, fetch_sub, old - value)                                        \
  FE_ATOMIC_UPDATE_HOOK(bits, type, fetch_and, old &value)                                         \
  FE_ATOMIC_UPDATE_HOOK(bits, type, fetch_or, old | value)                                         \
  FE_ATOMIC_UPDATE_HOOK(bits, type, fetch_xor, old ^ value)                                        \
  extern "C" FE_PLAIN type __tsan_atomic##bits##_compare_exchange_val(                             \
      volatile type *at, type expected, type value, int, int) {                                    \
    fe_plain(const_cast<type *>(at), sizeof *at, FE_ATOMIC);                                       \
    const type old = *at;                                                                          \
    if (old == expected) *at = value;                                                              \
    return old;                                                                                    \
  }                                                                                                \
  FE_COMPARE_EXCHANGE_HOOK(bits, type, strong)                                                     \
  FE_COMPARE_EXCHANGE_HOOK(bits, type, weak)
#define FE_ATOMIC_UPDATE_HOOK(bits, type, name, result)                                            \
  extern "C" FE_PLAIN type __tsan_atomic##bits##_##name(volatile type *at, type value, int) {      \
    fe_plain(const_cast<type *>(at), sizeof *at, FE_ATOMIC);                                       \
    const type old = *at;                                                                          \
    *at = result;                                                                                  \
    return old;                                                                                    \
  }
#define FE_COMPARE_EXCHANGE_HOOK(bits, type, strength)                                             \
  extern "C" FE_PLAIN int __tsan_atomic##bits##_compare_exchange_##strength(                       \
      volatile type *at, type *expected, type value, int, int) {                                   \
    fe_plain(const_cast<type *>(at), sizeof *at, FE_ATOMIC);                                       \
    const type old = *at;                                                                          \
    const bool same = old == *expected;                                                            \
    if (same) *at = value;                                                                         \
    *expected = old;                                                                               \
    return same;                                                                                   \
  }
FE_ATOMIC_HOOKS(32, int)
FE_ATOMIC_HOOKS(64, long)
#endif

// The kernel's one argument, whatever its type, from the launch's copy.
template <auto kernel> struct fe_call;
template <class Argument, void (*kernel)(Argument)> struct fe_call<kernel> {
  static constexpr int argument_bytes = sizeof(Argument);
  FE_PLAIN static void run(const void *argument) {
    kernel(*static_cast<const Argument *>(argument));
  }
};

// FE_KERNELS(ENTRY): ENTRY(name, blocks of a cluster) for every kernel of the text.
#define FE_ENTRY(kernel, cluster)                                                                  \
  {#kernel, fe_call<&kernel>::argument_bytes, cluster, fe_call<&kernel>::run},
#if defined(FE_ADDRESS_SANITIZER)
enum { FE_SEES_PLAIN = 0 };
#else
enum { FE_SEES_PLAIN = 1 };
#endif
static const fe_entry fe_entries[] = {FE_KERNELS(FE_ENTRY)};

extern "C" {
extern const unsigned char __ehdr_start[] __attribute__((visibility("hidden")));
extern const unsigned char _end[] __attribute__((visibility("hidden")));
extern const fe_kernel fatune_emulated __attribute__((visibility("default")));
const fe_kernel fatune_emulated = {
    FE_ABI,     FE_SEES_PLAIN, FE_CLANG,  sizeof fe_entries / sizeof fe_entries[0],
    fe_entries, &fe_machine,   shared,    __ehdr_start,
    _end,       FE_LINES,      fe_origins};
}
