/* philox.h: which elements dropout keeps.
 * in -> out: seed, offset, position -> kept or not, as the kernels draw it. */
#ifndef TUNER_PHILOX_H
#define TUNER_PHILOX_H

#include <stdbool.h>
#include <stdint.h>

/* Whether element (i, j) of (batch, head) is kept by the dropout mask: Philox4x32-10, bit for bit
 * as templates/parts/dropout.cu.in. threshold = round(p * 2^14). */
bool ft_dropout_keeps(uint64_t seed, uint64_t offset, int64_t batch, int heads_q, int head,
                      int64_t i, int64_t j, uint32_t threshold);
uint32_t ft_dropout_threshold(double probability);

/* The word that register w of one of the eight fragments takes from a draw's four words. */
uint32_t ft_dropout_word(const uint32_t words[4], int w, int fragment);

/* Philox4x32-10 (Salmon et al., SC 2011): counter and key -> four words. */
void ft_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

#endif
