/* halves.h: the 16-bit formats on the CPU.
 * in -> out: patterns of these and of e4m3 <-> numbers. */
#ifndef TUNER_HALVES_H
#define TUNER_HALVES_H

#include "generator/request.h"

double ft_from_dtype(enum ft_dtype dtype, uint16_t bits);
uint16_t ft_to_dtype(enum ft_dtype dtype, double value); /* round to nearest even */

/* ft_from_dtype(ft_to_dtype(value)), fast enough for inner loops. */
float ft_round_to_dtype(enum ft_dtype dtype, float value);
/* Patterns -> floats; exact. */
void ft_widen(enum ft_dtype dtype, const uint16_t *from, float *to, int count);

/* The same for 8-bit floats of 4 exponent and 3 fraction bits, which saturate: beyond 448 is 448.
 */
float ft_from_e4m3(uint8_t bits);
uint8_t ft_to_e4m3(float value);

/* Half a unit in the last place of the dtype at |value|. */
double ft_half_ulp(enum ft_dtype dtype, double value);

#endif
