/* numbers.h: what the bits of registers mean.
 * in -> out: 16-bit patterns -> fp32; 32 bits -> whether anything was ever written there. */
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

/* The compiler fills what is declared without a value (machine.h), so what is still full of it was
 * never written. */
static inline bool ft_unwritten(const void *value, bool is_float) {
  unsigned char bytes[4];
  memcpy(bytes, value, sizeof bytes);
  if (bytes[0] != bytes[1] || bytes[0] != bytes[2] || bytes[0] != bytes[3]) return false;
  return bytes[0] == FE_UNWRITTEN_GCC ||
         bytes[0] == (is_float ? FE_UNWRITTEN_CLANG_FLOAT : FE_UNWRITTEN_CLANG);
}

#endif
