/* halves.h: the formats of tensors on the CPU.
 * in -> out: patterns of 16 bits, of e4m3, fp32 <-> numbers. */
#ifndef TUNER_HALVES_H
#define TUNER_HALVES_H

#include "generator/request.h"

/* Of 16 bits. */
double ft_from_dtype(enum ft_dtype dtype, uint16_t bits);
uint16_t ft_to_dtype(enum ft_dtype dtype, double value); /* round to nearest even */

/* How Q, K and V of the dtype are kept on the host, where elements have 16 bits or are fp32: bf16
 * has all numbers of e4m3. */
enum ft_dtype ft_kept_dtype(enum ft_dtype dtype);

/* Element `index` of such an array, as a number and where it lies. */
const void *ft_element(enum ft_dtype dtype, const void *values, int64_t index);
double ft_number(enum ft_dtype dtype, const void *values, int64_t index);
void ft_set_number(enum ft_dtype dtype, void *values, int64_t index, double value);

/* The nearest number of the dtype, fast enough for inner loops. */
float ft_round_to_dtype(enum ft_dtype dtype, float value);
/* What a product of the dtype takes for these elements: rounded to TF32, else as they are. */
void ft_round_operand(enum ft_dtype dtype, const float *from, float *to, int count);
/* Elements -> floats; exact. */
void ft_widen(enum ft_dtype dtype, const void *from, float *to, int count);

/* The same for 8-bit floats of 4 exponent and 3 fraction bits, which saturate: beyond 448 is 448.
 */
float ft_from_e4m3(uint8_t bits);
uint8_t ft_to_e4m3(float value);

/* Half a unit in the last place of the dtype at |value|. */
double ft_half_ulp(enum ft_dtype dtype, double value);

#endif
