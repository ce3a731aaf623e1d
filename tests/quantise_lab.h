/* quantise_lab.h: what fatune_quantise must make of a row, in float64.
 * in -> out: numbers of a row -> the row rotated, what its descale follows from; byte times descale
 * -> whether that is the number. */
#ifndef TESTS_QUANTISE_LAB_H
#define TESTS_QUANTISE_LAB_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "tuner/verify/halves.h"

/* As the manual of the kernel says: bit 63 of a hash. */
static inline double quantise_sign(uint64_t seed, int column) {
  uint64_t x = seed ^ (uint64_t)column * 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
  x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
  return x >> 63 ? -1 : 1;
}

/* A row of x, rotated where that is asked for: entry (i, j) of the Hadamard matrix is -1 where i
 * and j have an odd number of bits in common. */
static inline void quantise_row(double *y, enum ft_dtype dtype, const uint16_t *x, int dim,
                                bool rotate, uint64_t seed) {
  const int block = dim & -dim;
  for (int c = 0; c < dim; c++) {
    y[c] = rotate ? 0 : ft_from_dtype(dtype, x[c]);
    for (int j = 0; j < block && rotate; j++) {
      const int from = c / block * block + j;
      const double entry = __builtin_popcount((unsigned)(c % block & j)) % 2 ? -1 : 1;
      y[c] += entry * quantise_sign(seed, from) * ft_from_dtype(dtype, x[from]) / sqrt(block);
    }
  }
}

/* What the descale of a row's block follows from: its largest number; rotated, the largest sum of
 * the sizes of numbers that are rotated together. */
static inline double quantise_size(enum ft_dtype dtype, const uint16_t *x, int dim, bool rotate) {
  const int block = rotate ? dim & -dim : 1;
  double largest = 0;
  for (int first = 0; first < dim; first += block) {
    double sum = 0;
    for (int c = first; c < first + block; c++) sum += fabs(ft_from_dtype(dtype, x[c]));
    largest = fmax(largest, sum);
  }
  return largest;
}

/* How often a row counts in the descale of a rotated head. Of up to 16 rows each counts twice; of
 * more, 8 to 16 that lie equally far apart do, the others once. */
static inline double quantise_weight(int row, int rows) {
  int apart = 1;
  while (16 * apart < rows) apart *= 2;
  return row % apart == 0 ? 2 : 1;
}

/* size: the largest of its rows. Rotated, a power of two before the rotation's factor. */
static inline double quantise_descale(double size, int dim, bool rotate) {
  return rotate ? exp2(ceil(log2(fmax(size / 448, 0x1p-36)))) / sqrt(dim & -dim)
                : fmax(size / 448, 0x1p-40);
}

/* is: a number of e4m3 times its descale. It may err by half of its last bit, of four; numbers
 * below 2^-6 are 2^-9 apart, and may err by half of that. */
static inline bool quantise_is_near(double is, double should, double descale) {
  return fabs(is - should) <= fabs(should) * (0x1p-4 + 1e-5) + descale * 0x1p-10;
}

#endif
