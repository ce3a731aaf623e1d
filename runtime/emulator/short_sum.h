/* short_sum.h: how tensor cores add products of e4m3 up.
 * in -> out: a sum, products -> the sum of all. */
#ifndef RUNTIME_EMULATOR_SHORT_SUM_H
#define RUNTIME_EMULATOR_SHORT_SUM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/numbers.h"

static inline int ft_exponent_of(float normal) {
  uint32_t bits;
  memcpy(&bits, &normal, sizeof bits);
  return (int)(bits >> 23 & 0xFF) - 127;
}

enum { FT_SHORT_SUMS = 8, FT_SHORT_DEPTH = 32, FT_SHORT_BITS = 13 };

/* A sum of integers, cut off below its first bits. */
static inline int ft_cut_off(int all) {
  int dropped = 0;
  while (abs(all) >> dropped >= 1 << (FT_SHORT_BITS + 1)) dropped++;
  return all / (1 << dropped) * (1 << dropped);
}

/* So many sums side by side: sum i gets the products a[k] * b[k * stride + i].
 *
 * Products of two e4m3 numbers are exact in fp32. With the sum so far they are aligned to the
 * largest of them and cut off 13 bits below its first bit; their sum is cut off there, too, 13 bits
 * below its own first bit (DeepSeek-V3, arXiv 2412.19437, 3.3.2; SageAttention2, arXiv 2411.10958,
 * 3.2: tensor cores of sm_89 and sm_90 add 8-bit floats so). What is no finite number goes its own
 * way. */
static inline void ft_short_sums(float *sums, const float *a, const float *b, int stride) {
  enum { N = FT_SHORT_SUMS };
  float products[FT_SHORT_DEPTH][N], largest[N], plain[N], units[N];
  int all[N];
  for (int i = 0; i < N; i++) {
    plain[i] = sums[i];
    largest[i] = fabsf(sums[i]);
  }
  for (int k = 0; k < FT_SHORT_DEPTH; k++)
    for (int i = 0; i < N; i++) {
      const float product = a[k] * b[k * stride + i], size = fabsf(product);
      products[k][i] = product;
      plain[i] += product;
      largest[i] = size > largest[i] ? size : largest[i];
    }
  for (int i = 0; i < N; i++) { /* addends of less than 2^14 units each */
    const bool is_cut = isfinite(plain[i]) && largest[i] >= 0x1p-100f;
    const int power = FT_SHORT_BITS - ft_exponent_of(largest[i]) + 127;
    units[i] = is_cut ? ft_float_of((uint32_t)power << 23) : 0;
    for (int k = 0; k < FT_SHORT_DEPTH && !is_cut; k++) products[k][i] = 0;
    all[i] = is_cut ? (int)(sums[i] * units[i]) : 0;
  }
  for (int k = 0; k < FT_SHORT_DEPTH; k++)
    for (int i = 0; i < N; i++) all[i] += (int)(products[k][i] * units[i]);
  for (int i = 0; i < N; i++)
    sums[i] = units[i] > 0 ? (float)ft_cut_off(all[i]) / units[i] : plain[i];
}

#endif
