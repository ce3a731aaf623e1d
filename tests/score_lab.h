/* score_lab.h: random score functions and what they are computed with.
 * in -> out: seed -> Lua text that plain Lua reads, too; scalars and tensors that it captures. */
#ifndef TESTS_SCORE_LAB_H
#define TESTS_SCORE_LAB_H

#include "generator/score/interpret.h"
#include "generator/text.h"

/* The texts capture, in this order: */
enum { LAB_SLOPE, LAB_BIAS, LAB_TABLE, LAB_PAIR, LAB_DOCUMENT, LAB_WIDE, LAB_FLAG, LAB_TENSORS };
enum { LAB_CAP, LAB_SCALE, LAB_STEP, LAB_SCALARS };

enum {
  LAB_BATCH = 2,
  LAB_HEADS = 6,
  LAB_KV_HEADS = 3,
  LAB_NQ = 12,
  LAB_NK = 20,
  LAB_TABLE_SIZE = 9
};

/* A text with score and visible; text to be freed. What it compares and takes the floor of is exact
 * in fp32 and in float64, and its values are moderate. */
void lab_random_score(uint64_t seed, struct ft_text *text);

/* Tensors with the values of a seed; they stay those until the next call. */
void lab_fill(uint64_t seed, struct ft_score_inputs *inputs);

/* Another place: batch entry, head, query, key and a score that is a multiple of 1/8. */
void lab_place(uint64_t *random, struct ft_score_inputs *inputs);

/* The next of a sequence of random numbers. */
uint64_t lab_random(uint64_t *random);

#endif
