/* numbers.h: what the bits of registers mean.
 * in -> out: 16-bit and 8-bit patterns -> fp32; 32 bits -> whether anything was ever written there.
 */
#ifndef RUNTIME_EMULATOR_NUMBERS_H
#define RUNTIME_EMULATOR_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "runtime/emulator/device/machine.h"

static inline float ft_float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float ft_from_bf16(uint32_t bits) {
  return ft_float_of(bits << 16);
}

static inline float ft_from_fp16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7FFFu;
  if (rest >= 0x7C00u) return ft_float_of(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
  if (rest >= 0x400u) return ft_float_of(sign | ((rest << 13) + 0x38000000u));
  const float tiny = (float)rest * 0x1p-24f;
  return sign ? -tiny : tiny;
}

static inline float ft_from_e4m3(uint32_t bits) {
  const uint32_t sign = (bits & 0x80u) << 24, rest = bits & 0x7Fu;
  if (rest == 0x7Fu) return ft_float_of(sign | 0x7FC00000u);
  if (rest >= 8u) return ft_float_of(sign | ((rest << 20) + 0x3C000000u));
  const float tiny = (float)rest * 0x1p-9f;
  return sign ? -tiny : tiny;
}

/* The compiler fills what is declared without a value (machine.h), so what is still full of it was
 * never written. */
static inline bool ft_unwritten_float(const struct fe_kernel *kernel, const float *value) {
  uint32_t bits;
  memcpy(&bits, value, sizeof bits);
  return bits == 0x01010101u * (kernel->clang ? FE_UNWRITTEN_CLANG_FLOAT : FE_UNWRITTEN_GCC);
}

/* A register of two 16-bit numbers. Clang's 0xAAAA is one of them, -0.052 in fp16: twice that may
 * be chance, so the next register of the operand has to be full, too. GCC's 0xFEFE is none that
 * comes about: a NaN in fp16, -1.7e38 in bf16. */
static inline bool ft_unwritten_pair(const struct fe_kernel *kernel, const uint32_t *pair,
                                     const uint32_t *next) {
  if (!kernel->clang) return *pair == 0x01010101u * FE_UNWRITTEN_GCC;
  return *pair == 0x01010101u * FE_UNWRITTEN_CLANG && *next == *pair;
}

#endif
