/* halves.c: the floating-point formats of tensors on the CPU.
 * in -> out: fp16 and bf16 patterns <-> double, rounded to nearest even. */

#include "tuner/verify/halves.h"

#include <math.h>
#include <string.h>

/* Fraction bits, largest exponent and smallest normal exponent (of 1.f x 2^e). */
struct format {
  int fraction_bits, exponent_max, exponent_min;
};

static struct format format_of(enum ft_dtype dtype) {
  return dtype == FT_FP16 ? (struct format){10, 15, -14} : (struct format){7, 127, -126};
}

double ft_from_dtype(enum ft_dtype dtype, uint16_t bits) {
  const struct format format = format_of(dtype);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> format.fraction_bits;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 2 * format.exponent_max + 1) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, format.exponent_min - format.fraction_bits);
  return sign * ldexp((1 << format.fraction_bits) + fraction,
                      exponent - format.exponent_max - format.fraction_bits);
}

uint16_t ft_to_dtype(enum ft_dtype dtype, double value) {
  const struct format format = format_of(dtype);
  const unsigned sign = signbit(value) ? 0x8000 : 0;
  const unsigned infinity = (unsigned)(2 * format.exponent_max + 1) << format.fraction_bits;
  if (isnan(value)) return (uint16_t)(sign | infinity | 1u << (format.fraction_bits - 1));
  if (isinf(value)) return (uint16_t)(sign | infinity);
  if (value == 0) return (uint16_t)sign;

  int exponent;
  frexp(value, &exponent); /* |value| = m x 2^exponent, 1/2 <= m < 1 */
  exponent -= 1;
  if (exponent < format.exponent_min) exponent = format.exponent_min;
  if (exponent > format.exponent_max) return (uint16_t)(sign | infinity);
  /* The value in units of the last place: rint rounds ties to even in the default mode, and the
   * scaling is exact. A carry out of the fraction goes into the exponent field, which is right, up
   * to infinity. */
  const double units = rint(ldexp(fabs(value), format.fraction_bits - exponent));
  const unsigned biased = (unsigned)(exponent - format.exponent_min) << format.fraction_bits;
  return (uint16_t)(sign | (biased + (unsigned)units));
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

enum ft_dtype ft_kept_dtype(enum ft_dtype dtype) {
  return dtype == FT_E4M3 ? FT_BF16 : dtype == FT_TF32 ? FT_FP32 : dtype;
}

const void *ft_element(enum ft_dtype dtype, const void *values, int64_t index) {
  return (const char *)values + index * ft_dtype_bytes(dtype);
}

double ft_number(enum ft_dtype dtype, const void *values, int64_t index) {
  if (ft_dtype_is_fp32(dtype)) return (double)((const float *)values)[index];
  return ft_from_dtype(dtype, ((const uint16_t *)values)[index]);
}

void ft_set_number(enum ft_dtype dtype, void *values, int64_t index, double value) {
  if (ft_dtype_is_fp32(dtype))
    ((float *)values)[index] = (float)value;
  else
    ((uint16_t *)values)[index] = ft_to_dtype(dtype, value);
}

/* 11 bits; of two nearest numbers the larger. */
static float round_to_tf32(float value) {
  return isfinite(value) ? float_of((bits_of(value) + 0x1000u) & 0xFFFFE000u) : value;
}

float ft_round_to_dtype(enum ft_dtype dtype, float value) {
  if (dtype == FT_FP32) return value;
  if (dtype == FT_TF32) return round_to_tf32(value);
  const int dropped = dtype == FT_FP16 ? 13 : 16;
  const float smallest_normal = dtype == FT_FP16 ? 0x1p-14f : 0x1p-126f;
  const float magnitude = fabsf(value);
  if (!(magnitude < 0x1p15f)) return (float)ft_from_dtype(dtype, ft_to_dtype(dtype, (double)value));
  if (magnitude < smallest_normal) {
    if (dtype == FT_BF16) return (float)ft_from_dtype(dtype, ft_to_dtype(dtype, (double)value));
    /* The last place of 0.5 is that of fp16's subnormals, 2^-24, so the addition does the rounding.
     */
    volatile const float shifted = magnitude + 0.5f;
    return copysignf(shifted - 0.5f, value);
  }
  const uint32_t bits = bits_of(value);
  const uint32_t half = (1u << (dropped - 1)) - 1 + (bits >> dropped & 1); /* ties to even */
  return float_of((bits + half) & ~((1u << dropped) - 1));
}

static float widen_bf16(uint16_t pattern) {
  return float_of((uint32_t)pattern << 16);
}

/* The fields need only be shifted; the product corrects the bias, for subnormals, too. */
static float widen_fp16(uint16_t pattern) {
  const uint32_t fields = (uint32_t)(pattern & 0x7FFF) << 13;
  const uint32_t special = (pattern & 0x7C00) == 0x7C00 ? 0x7F800000u : 0;
  const uint32_t magnitude = bits_of(float_of(fields) * 0x1p112f) | special;
  return float_of(magnitude | (uint32_t)(pattern & 0x8000) << 16);
}

/* The lanes let the compiler use vector registers. */
static void widen_halves(enum ft_dtype dtype, const uint16_t *restrict from, float *restrict to,
                         int count) {
  enum { LANES = 8 };
  int i = 0;
  for (; i + LANES <= count && dtype == FT_BF16; i += LANES)
    for (int lane = 0; lane < LANES; lane++) to[i + lane] = widen_bf16(from[i + lane]);
  for (; i + LANES <= count; i += LANES)
    for (int lane = 0; lane < LANES; lane++) to[i + lane] = widen_fp16(from[i + lane]);
  for (; i < count; i++) to[i] = dtype == FT_BF16 ? widen_bf16(from[i]) : widen_fp16(from[i]);
}

void ft_widen(enum ft_dtype dtype, const void *from, float *to, int count) {
  if (ft_dtype_is_fp32(dtype))
    memcpy(to, from, (size_t)count * sizeof *to);
  else
    widen_halves(dtype, from, to, count);
}

float ft_from_e4m3(uint8_t bits) {
  const int fraction = bits & 7, exponent = bits >> 3 & 15;
  const float sign = bits & 0x80 ? -1 : 1;
  if ((bits & 0x7F) == 0x7F) return NAN;
  if (exponent == 0) return sign * (float)fraction * 0x1p-9f;
  return sign * ldexpf((float)(8 + fraction), exponent - 10);
}

uint8_t ft_to_e4m3(float value) {
  const float largest = 448, magnitude = fabsf(value);
  const unsigned sign = signbit(value) ? 0x80 : 0;
  if (isnan(value)) return (uint8_t)(sign | 0x7F);
  if (magnitude >= largest) return (uint8_t)(sign | 0x7E);
  int exponent = -6; /* of the smallest normal number; those below have its spacing */
  if (magnitude >= 0x1p-6f) exponent = ilogbf(magnitude);
  const unsigned units = (unsigned)rintf(ldexpf(magnitude, 3 - exponent)); /* ties to even */
  return (uint8_t)(sign | (((unsigned)(exponent + 6) << 3) + units));
}

static int significand_bits(enum ft_dtype dtype) {
  if (dtype == FT_FP32) return 24;
  return dtype == FT_BF16 ? 8 : 11; /* fp16, TF32 */
}

double ft_half_ulp(enum ft_dtype dtype, double value) {
  int exponent;
  frexp(value, &exponent);
  const int smallest = dtype == FT_FP16 ? -13 : -125; /* frexp's exponent of the smallest normal */
  if (value == 0 || exponent < smallest) exponent = smallest; /* of 0, frexp's exponent is 0 */
  return ldexp(0.5, exponent - significand_bits(dtype));
}

void ft_round_operand(enum ft_dtype dtype, const float *from, float *to, int count) {
  if (dtype == FT_TF32)
    for (int i = 0; i < count; i++) to[i] = round_to_tf32(from[i]);
  else if (to != from)
    memcpy(to, from, (size_t)count * sizeof *to);
}
