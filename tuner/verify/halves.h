/* halves.h: the 16-bit formats on the CPU.
 * in -> out: patterns <-> numbers. */
#ifndef TUNER_HALVES_H
#define TUNER_HALVES_H

#include "generator/request.h"

double ft_from_dtype(enum ft_dtype dtype, uint16_t bits);
uint16_t ft_to_dtype(enum ft_dtype dtype, double value); /* round to nearest even */

/* ft_from_dtype(ft_to_dtype(value)), fast enough for inner loops. */
float ft_round_to_dtype(enum ft_dtype dtype, float value);
/* Patterns -> floats; exact. */
void ft_widen(enum ft_dtype dtype, const uint16_t *from, float *to, int count);

/* Half a unit in the last place of the dtype at |value|. */
double ft_half_ulp(enum ft_dtype dtype, double value);

#endif
