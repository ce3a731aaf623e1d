/* swept_places.h: which calls a sweep lets fail. A chain of callers that makes such calls is swept
 * once; a file remembers the chains from one sweep to the next. in -> out: what
 * faulty/fault_order.c says of a run, the file FATUNE_TEST_PLACES -> the first and the last call of
 * each chain that no sweep has had yet. */
#ifndef TESTS_SWEPT_PLACES_H
#define TESTS_SWEPT_PLACES_H

#include <stdio.h>

struct swept_places {
  char (*names)[17];
  long count;
};

/* The places that the file named by FATUNE_TEST_PLACES lists; none if the variable is not set. */
void swept_places_take(struct swept_places *places);

/* Adds them to that file. */
void swept_places_keep(const struct swept_places *places);

void swept_places_free(struct swept_places *places);

/* Reads lines "CHAIN FIRST LAST", calls of 1 .. most. Returns *count calls, which the caller frees;
 * chains that `swept` names are left out, the others are added to `now`. */
long *swept_places_read(FILE *file, const struct swept_places *swept, struct swept_places *now,
                        long most, long *count);

#endif
