/* fault_order.c: what a test says to a program whose calls for memory and files are to fail.
 * in -> out: FATUNE_TEST_FAULT=memory|files:N[:ever] -> the N-th such call fails, once or from then
 * on (0: none); the file FATUNE_TEST_FAULT_SAYS: how many there were; where none was to fail, also
 * each place: its callers, its first call and its last one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faulty/fault_calls.h"

static bool ordered;

__attribute__((constructor)) static void take_order(void) {
  const char *const order = getenv("FATUNE_TEST_FAULT");
  if (!order) return;
  const char *const number = strchr(order, ':');
  if (!number) abort();
  char *rest;
  const long n = strtol(number + 1, &rest, 10);
  const bool ever = strcmp(rest, ":ever") == 0;
  if (rest == number + 1 || (rest[0] && !ever)) abort();
  fault_calls_begin();
  if (n == 0) fault_calls_note_places();
  ordered = true;
  fault_calls_arm(strncmp(order, "memory:", 7) == 0 ? FAULT_MEMORY : FAULT_FILES, n, ever);
}

__attribute__((destructor)) static void tell(void) {
  const char *const says = getenv("FATUNE_TEST_FAULT_SAYS");
  if (!says || !ordered) return;
  const long count = fault_calls_disarm();
  FILE *const file = fopen(says, "w");
  if (!file) return;
  fprintf(file, "%ld\n", count);
  size_t at = 0;
  for (const struct fault_place *place; (place = fault_calls_place(&at)) != NULL;)
    fprintf(file, "%016" PRIx64 " %ld %ld\n", place->callers, place->first, place->last);
  fclose(file);
}
