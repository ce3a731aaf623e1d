/* philox.c: the dropout mask on the CPU.
 * in -> out: (seed, offset, batch, head, i, j) -> kept or not, bit for bit as
 * templates/parts/dropout.cu.in. Generator: Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011. */

#include "tuner/verify/philox.h"

#include <math.h>

enum { THRESHOLD_BITS = 14 };

void ft_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
    const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u; /* golden ratio */
    k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

uint32_t ft_dropout_threshold(double probability) {
  if (!(probability > 0)) return 0;
  if (probability >= 1) return 1u << THRESHOLD_BITS;
  return (uint32_t)lround(probability * (1u << THRESHOLD_BITS));
}

static uint32_t ror(uint32_t x, int bits) {
  return x >> bits | x << (32 - bits);
}

uint32_t ft_dropout_word(const uint32_t words[4], int w, int fragment) {
  if (fragment == 0) return words[w];
  if (fragment == 4) return words[w] ^ ror(words[(w + 1) % 4], 8) ^ ror(words[(w + 2) % 4], 20);
  return words[w] ^ ror(words[(w + fragment) % 4], fragment < 4 ? 8 : 20);
}

bool ft_dropout_keeps(uint64_t seed, uint64_t offset, int64_t batch, int heads_q, int head,
                      int64_t i, int64_t j, uint32_t threshold) {
  const uint32_t counter[4] = {(uint32_t)offset, (uint32_t)((j / 64) * 4 + (j % 8) / 2),
                               (uint32_t)(batch * heads_q + head),
                               (uint32_t)((i / 32) * 8 + i % 8)};
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(offset >> 32)};
  uint32_t words[4];
  ft_philox(counter, key, words);
  /* One draw serves the 64 elements of a 32x64 block that one thread holds as eight mma fragments.
   */
  const int w = (int)((i / 8) % 2 + 2 * ((j / 8) % 2));
  const uint32_t word = ft_dropout_word(words, w, (int)((j / 16) % 4 + 4 * ((i / 16) % 2)));
  const uint32_t half = j % 2 ? word >> 16 : word;
  return (half & 0x3FFFu) >= threshold;
}
