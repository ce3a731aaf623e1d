/* short_sum.h: how tensor cores add products of e4m3 up.
 * in -> out: a sum, products -> the sum of all. */
#ifndef RUNTIME_EMULATOR_SHORT_SUM_H
#define RUNTIME_EMULATOR_SHORT_SUM_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/numbers.h"

static inline int ft_exponent_of(float normal) {
  uint32_t bits;
  memcpy(&bits, &normal, sizeof bits);
  return (int)(bits >> 23 & 0xFF) - 127;
}

/* Products of two e4m3 numbers are exact in fp32. With the sum so far they are aligned to the
 * largest of them and cut off 13 bits below its first bit; their sum is cut off there, too, 13 bits
 * below its own first bit (DeepSeek-V3, arXiv 2412.19437, 3.3.2; SageAttention2, arXiv 2411.10958,
 * 3.2: tensor cores of sm_89 and sm_90 add 8-bit floats so). What is no finite number goes its own
 * way. */
static inline float ft_short_sum(float sum, const float *products, int count) {
  enum { BITS = 13 };
  float largest = fabsf(sum), plain = sum;
  for (int k = 0; k < count; k++) {
    largest = fmaxf(largest, fabsf(products[k]));
    plain += products[k];
  }
  if (!isfinite(plain) || largest < 0x1p-100f) return plain;
  const float units = ft_float_of((uint32_t)(BITS - ft_exponent_of(largest) + 127) << 23);
  int all = (int)(sum * units); /* of addends less than 2^14 each */
  for (int k = 0; k < count; k++) all += (int)(products[k] * units);
  int dropped = 0;
  while (abs(all) >> dropped >= 1 << (BITS + 1)) dropped++;
  return (float)(all / (1 << dropped) * (1 << dropped)) / units;
}

#endif
