/* store_skipped.c: rows of another version, which this one cannot read, are counted and told of.
 * in -> out: rows met, one by one, some of them twice -> one warning a file: how many, and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/store_parts.h"
#include "generator/status.h"

static bool grow(struct ft_skipped *skipped) {
  if (skipped->count < skipped->capacity) return true;
  const size_t capacity = skipped->capacity ? 2 * skipped->capacity : 64;
  uint64_t *const rows = realloc(skipped->rows, capacity * sizeof *rows);
  if (!rows) return false;
  skipped->rows = rows;
  skipped->capacity = capacity;
  return true;
}

/* Why, without the list of what is allowed, which is long. */
static void note_reason(struct ft_skipped *skipped) {
  snprintf(skipped->reason, sizeof skipped->reason, "%s", ft_detail());
  char *const list = strstr(skipped->reason, "; allowed");
  if (list) *list = '\0';
}

/* Without memory for it the row is skipped all the same, and the count is short by one. */
void ft_store_skip(struct ft_database *database, const struct ft_digest *identity) {
  struct ft_skipped *const skipped = &database->skipped;
  if (database->reported & 1U << FT_REMARK_VERSION || !grow(skipped)) return;
  if (skipped->count == 0) note_reason(skipped);
  memcpy(&skipped->rows[skipped->count++], identity->bytes, sizeof *skipped->rows);
}

static int order_rows(const void *a, const void *b) {
  uint64_t left = 0, right = 0;
  memcpy(&left, a, sizeof left);
  memcpy(&right, b, sizeof right);
  return (left > right) - (left < right);
}

static size_t count_different(struct ft_skipped *skipped) {
  size_t different = 0;
  qsort(skipped->rows, skipped->count, sizeof *skipped->rows, order_rows);
  for (size_t n = 0; n < skipped->count; n++)
    different += n == 0 || skipped->rows[n] != skipped->rows[n - 1];
  return different;
}

void ft_store_tell_skipped_in(struct ft_store *store, struct ft_database *database) {
  struct ft_skipped *const skipped = &database->skipped;
  if (skipped->count == 0) return;
  const size_t count = count_different(skipped);
  char message[512];
  snprintf(message, sizeof message, "%s: %zu trial%s of another version %s skipped (%s)",
           ft_database_name(database), count, count == 1 ? "" : "s", count == 1 ? "is" : "are",
           skipped->reason);
  ft_store_remark(store, database, message);
  free(skipped->rows);
  *skipped = (struct ft_skipped){0};
}

void ft_store_tell_skipped(struct ft_store *store) {
  for (int kind = 0; kind < FT_KINDS; kind++)
    ft_store_tell_skipped_in(store, &store->user[kind].database);
  ft_store_tell_skipped_in(store, &store->memory);
  for (int i = 0; i < store->layer_count; i++) ft_store_tell_skipped_in(store, &store->layers[i]);
}
