/* random_inputs.h: seeded random tensors and masks.
 * in -> out: seed -> patterns of a dtype, bitmaps. */
#ifndef TUNER_RANDOM_INPUTS_H
#define TUNER_RANDOM_INPUTS_H

#include "generator/request.h"

/* `count` standard normal numbers as patterns of the dtype; large tensors repeat pieces of a block.
 */
int ft_random_tensor(void **tensor, enum ft_dtype dtype, int64_t count, uint64_t seed);

/* The same of so few numbers, again and again, that a tensor is made as fast as it is copied. */
int ft_random_pieces(void **tensor, enum ft_dtype dtype, int64_t count, uint64_t seed);

/* Rounds them to multiples of 1/64. */
void ft_random_make_coarse(void *tensor, enum ft_dtype dtype, int64_t count);

/* Rounds elements of a 16-bit dtype to numbers of e4m3. */
void ft_random_make_e4m3(uint16_t *tensor, enum ft_dtype dtype, int64_t count);

/* A random bitmap of the mask, with an empty list if it has three or more; *density is that of the
 * bitmap. */
int ft_random_blocks(uint8_t **blocks, const struct ft_request *request, int64_t batch, int heads,
                     uint64_t seed);

/* Splitmix64 of Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
 */
uint64_t ft_random_next(uint64_t *state);

#endif
