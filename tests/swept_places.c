/* swept_places.c: names of chains, and calls by them. in -> out: swept_places.h. */
#include "tests/swept_places.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool has(const struct swept_places *places, const char *name) {
  for (long i = 0; i < places->count; i++)
    if (strcmp(places->names[i], name) == 0) return true;
  return false;
}

static void add(struct swept_places *places, const char *name) {
  places->names = realloc(places->names, (size_t)(places->count + 1) * sizeof *places->names);
  ck_assert_ptr_nonnull(places->names);
  strcpy(places->names[places->count++], name);
}

void swept_places_take(struct swept_places *places) {
  const char *const path = getenv("FATUNE_TEST_PLACES");
  FILE *const file = path ? fopen(path, "r") : NULL;
  char name[17];
  while (file && fscanf(file, "%16s", name) == 1) add(places, name);
  if (file) fclose(file);
}

void swept_places_keep(const struct swept_places *places) {
  const char *const path = getenv("FATUNE_TEST_PLACES");
  FILE *const file = path ? fopen(path, "a") : NULL;
  ck_assert(!path || file);
  for (long i = 0; file && i < places->count; i++) fprintf(file, "%s\n", places->names[i]);
  if (file) ck_assert_int_eq(fclose(file), 0);
}

void swept_places_free(struct swept_places *places) {
  free(places->names);
}

long *swept_places_read(FILE *file, const struct swept_places *swept, struct swept_places *now,
                        long most, long *count) {
  long *const calls = calloc((size_t)most + 1, sizeof *calls);
  char name[17], numbers[2][24];
  ck_assert_ptr_nonnull(calls);
  *count = 0;
  while (fscanf(file, "%16s %23s %23s", name, numbers[0], numbers[1]) == 3) {
    const long first = strtol(numbers[0], NULL, 10), last = strtol(numbers[1], NULL, 10);
    if (has(swept, name)) continue;
    if (!has(now, name)) add(now, name);
    ck_assert(first >= 1 && first <= last && last <= most && *count + 2 <= most + 1);
    calls[(*count)++] = first;
    if (last != first) calls[(*count)++] = last;
  }
  return calls;
}
