/* store_trials.c: trials in, and all of them out again.
 * in -> out: trial -> row; bucket and device -> every trial, in winner's order. */
#include <stdlib.h>
#include <string.h>

#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

/* Within a transaction, which it ends. */
static int put_into(struct ft_database *database, const struct ft_trial *trial) {
  bool inserted = false;
  const int status = ft_row_put_trial(database, trial, &inserted);
  if (status == FT_OK) return ft_database_commit(database);
  ft_database_rollback(database);
  return status;
}

static int put(struct ft_store *store, const struct ft_trial *trial) {
  struct ft_database *user = NULL;
  int status = ft_store_begin(store, FT_KIND_TUNING, &user);
  if (status == FT_OK) {
    status = put_into(user, trial);
    if (status == FT_E_CACHE) ft_store_report(store, user, FT_FAULT_WRITE);
  }
  if (status != FT_E_CACHE) return status;
  struct ft_database *const memory = ft_store_memory(store);
  if (!memory) return FT_E_MEMORY;
  int kept = ft_database_begin(memory, 0);
  if (kept == FT_OK) kept = put_into(memory, trial);
  return kept != FT_OK || store->memory_only || store->read_only ? kept : status;
}

int ft_store_trial_put(struct ft_store *store, const struct ft_trial *trial) {
  ft_store_enter(store);
  const int status = put(store, trial);
  atomic_fetch_add(&store->taken_in, 1);
  ft_store_leave(store);
  return status;
}

static bool same_spot(const struct ft_spot *a, const struct ft_spot *b) {
  return strcmp(a->bucket, b->bucket) == 0 && strcmp(a->device, b->device) == 0;
}

static int spots_of(struct ft_store *store, const struct ft_request *bucket, const char *device,
                    int last_layer, struct ft_spots *spots) {
  static const char sql[] = "SELECT DISTINCT bucket, device FROM trials WHERE "
                            "(?1 IS NULL OR bucket = ?1) AND (?2 IS NULL OR device = ?2)";
  char *text = NULL;
  int status = FT_OK;
  if (bucket) {
    const struct ft_request rounded = ft_request_bucket(bucket);
    status = ft_row_request_text(&rounded, &text);
  }
  const char *const texts[3] = {text, device, NULL};
  if (status == FT_OK) status = ft_store_spots(store, sql, texts, last_layer, spots);
  free(text);
  return status;
}

/* One (bucket, device) at a time is held in memory, and the lock is not held while the caller
 * looks: a list of everything is long, and the callback may use the store. layer: as of a filter;
 * that of what is shipped is the last. */
static int visit_all(struct ft_store *store, const struct ft_request *bucket, const char *device,
                     int layer, bool (*visit)(void *payload, const struct ft_trial *trial),
                     void *payload) {
  const int before_shipped = store->shipped_layer > 0 ? store->shipped_layer - 1 : -1;
  struct ft_spots spots = {0};
  ft_store_enter(store);
  int status = spots_of(store, bucket, device, layer < 0 ? before_shipped : layer, &spots);
  ft_store_leave(store);

  bool wanted = true;
  for (size_t i = 0; status == FT_OK && wanted && i < spots.count; i++) {
    if (i > 0 && same_spot(&spots.at[i - 1], &spots.at[i])) continue;
    const struct ft_filter filter = {
        .bucket = spots.at[i].bucket, .device = spots.at[i].device, .layer = layer};
    struct ft_entries entries;
    ft_store_enter(store);
    status = ft_store_gather(store, &filter, &entries);
    ft_store_leave(store);
    for (size_t k = 0; status == FT_OK && wanted && k < entries.count; k++)
      wanted = visit(payload, &entries.at[k]->trial);
    if (status == FT_OK) ft_entries_free(&entries);
  }
  ft_spots_free(&spots);
  ft_store_enter(store);
  ft_store_tell_skipped(store);
  ft_store_leave(store);
  return status;
}

int ft_store_trials(struct ft_store *store, const struct ft_request *bucket, const char *device,
                    bool (*visit)(void *payload, const struct ft_trial *trial), void *payload) {
  return visit_all(store, bucket, device, -1, visit, payload);
}

int ft_store_shipped(struct ft_store *store,
                     bool (*visit)(void *payload, const struct ft_trial *trial), void *payload) {
  if (store->shipped_layer == 0) return FT_OK;
  return visit_all(store, NULL, NULL, store->shipped_layer, visit, payload);
}
