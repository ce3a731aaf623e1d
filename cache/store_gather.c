/* store_gather.c: trials out of all sources: by filter, and which buckets there are.
 * in -> out: a filter -> ranked trials; a SELECT -> (bucket, device) pairs. */
#include <stdlib.h>
#include <string.h>

#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

static const char TRIALS[] =
    "SELECT " FT_TRIAL_COLUMNS " FROM trials WHERE bucket = ?1 AND device = ?2 AND "
    "(?3 IS NULL OR outcome = ?3) AND (?4 IS NULL OR policy = ?4) AND "
    "(?5 IS NULL OR templates = ?5)";

/* Room for one more element; FT_E_MEMORY. */
static int grow(void **array, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity) return FT_OK;
  const size_t wider = *capacity ? 2 * *capacity : 16;
  void *const grown = realloc(*array, wider * size);
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory for %zu rows", wider);
  *array = grown;
  *capacity = wider;
  return FT_OK;
}

/* -- trials --------------------------------------------------------------------------------- */

/* The searched columns are copies: what counts is in the text, and the two may differ by damage. */
static int check_filter(const struct ft_trial *trial, const struct ft_filter *filter,
                        bool *passes) {
  char *bucket = NULL;
  *passes = false;
  FT_TRY(ft_row_request_text(&trial->bucket, &bucket));
  const bool same = strcmp(bucket, filter->bucket) == 0;
  free(bucket);
  *passes = same && strcmp(trial->device, filter->device) == 0 &&
            (!filter->policy || strcmp(trial->policy, filter->policy) == 0) &&
            (!filter->outcome || strcmp(ft_outcome_name(trial->outcome), filter->outcome) == 0) &&
            (!filter->templates || ft_digest_equal(&trial->templates, filter->templates));
  return FT_OK;
}

static int add_entry(struct ft_store *store, struct ft_database *database, sqlite3_stmt *statement,
                     const struct ft_filter *filter, struct ft_entries *entries) {
  struct ft_entry *const entry = calloc(1, sizeof *entry);
  if (!entry) return ft_fail(FT_E_MEMORY, "no memory for a trial");
  int status = ft_row_read_trial(statement, &entry->trial, &entry->identity);
  if (status == FT_E_CACHE) {
    ft_fail_within(status, "%s", ft_database_name(database));
    ft_store_report(store, database, FT_FAULT_ROW);
  }
  if (status == FT_E_NOT_FOUND) ft_store_skip(database, &entry->identity);
  bool passes = false;
  if (status == FT_OK) status = check_filter(&entry->trial, filter, &passes);
  if (status == FT_OK && passes) {
    void *array = entries->at;
    status = grow(&array, entries->count, &entries->capacity, sizeof *entries->at);
    entries->at = array;
    if (status == FT_OK) {
      entries->at[entries->count++] = entry;
      return FT_OK;
    }
  }
  free(entry);
  return status == FT_E_MEMORY ? status : FT_OK;
}

static int gather_from(struct ft_store *store, struct ft_database *database,
                       const struct ft_filter *filter, struct ft_entries *entries) {
  sqlite3_stmt *statement = NULL;
  int status = ft_database_prepare(database, TRIALS, &statement);
  int code = SQLITE_DONE;
  if (status == FT_OK) {
    int failed = ft_bind_text(statement, 1, filter->bucket);
    failed |= ft_bind_text(statement, 2, filter->device);
    failed |= ft_bind_text(statement, 3, filter->outcome);
    failed |= ft_bind_text(statement, 4, filter->policy);
    if (filter->templates) failed |= ft_bind_digest(statement, 5, filter->templates);
    status = ft_database_bound(database, failed);
    while (status == FT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW)
      status = add_entry(store, database, statement, filter, entries);
    if (status == FT_OK && code != SQLITE_DONE)
      status = ft_database_fail(database, "trials cannot be read");
  }
  ft_database_done(statement);
  if (status == FT_E_CACHE) ft_store_report(store, database, FT_FAULT_READ);
  return status == FT_E_MEMORY ? status : FT_OK;
}

int ft_store_gather(struct ft_store *store, const struct ft_filter *filter,
                    struct ft_entries *entries) {
  struct ft_sources sources;
  *entries = (struct ft_entries){0};
  ft_store_sources(store, FT_KIND_TUNING, &sources);
  int status = FT_OK;
  for (int i = 0; status == FT_OK && i < sources.count; i++)
    if (filter->layer == sources.at[i].layer ||
        (filter->layer < 0 && !ft_store_is_shipped(store, sources.at[i].layer)))
      status = gather_from(store, sources.at[i].database, filter, entries);
  if (status == FT_OK)
    status =
        ft_winner_rank(entries->at, &entries->count, &entries->standings, &entries->standing_count);
  if (status != FT_OK) ft_entries_free(entries);
  return status;
}

void ft_entries_free(struct ft_entries *entries) {
  for (size_t i = 0; i < entries->count; i++) free(entries->at[i]);
  free(entries->at);
  free(entries->standings);
  *entries = (struct ft_entries){0};
}

/* -- spots ---------------------------------------------------------------------------------- */

static int order_spots(const void *a, const void *b) {
  const struct ft_spot *const left = a, *const right = b;
  int order = strcmp(left->bucket, right->bucket);
  if (order == 0) order = strcmp(left->device, right->device);
  return order != 0 ? order : (left->layer > right->layer) - (left->layer < right->layer);
}

static int add_spot(sqlite3_stmt *statement, int layer, struct ft_spots *spots) {
  const char *const bucket = (const char *)sqlite3_column_text(statement, 0);
  const char *const device = (const char *)sqlite3_column_text(statement, 1);
  if (sqlite3_errcode(sqlite3_db_handle(statement)) == SQLITE_NOMEM)
    return ft_fail(FT_E_MEMORY, "no memory for the name of a bucket");
  if (!bucket || !device) return FT_OK;
  void *array = spots->at;
  const int status = grow(&array, spots->count, &spots->capacity, sizeof *spots->at);
  spots->at = array;
  FT_TRY(status);
  struct ft_spot spot = {strdup(bucket), strdup(device), layer};
  if (!spot.bucket || !spot.device) {
    free(spot.bucket);
    free(spot.device);
    return ft_fail(FT_E_MEMORY, "no memory for the name of a bucket");
  }
  spots->at[spots->count++] = spot;
  return FT_OK;
}

/* ?4 and ?5, where a SELECT has them: the spot behind which it begins. */
enum { AFTER_BUCKET = 4, AFTER_DEVICE };

static int bind_after(sqlite3_stmt *statement, const struct ft_spot *last) {
  const int failed = ft_bind_text(statement, AFTER_BUCKET, last->bucket);
  return failed | ft_bind_text(statement, AFTER_DEVICE, last->device);
}

/* Of a source that begins at first: the last spot; before there is one, that which none goes
 * before. */
static struct ft_spot last_spot(const struct ft_spots *spots, size_t first) {
  static char none[] = "";
  return spots->count > first ? spots->at[spots->count - 1] : (struct ft_spot){none, none, 0};
}

/* One SELECT gives all spots, or each time the next one, until none comes that is greater: an index
 * that is damaged may give the same for ever. */
static int step_spots(sqlite3_stmt *statement, struct ft_source_of_rows *source,
                      struct ft_spots *spots) {
  const bool one_by_one = sqlite3_bind_parameter_count(statement) == AFTER_DEVICE;
  const size_t first = spots->count;
  for (bool more = true; more;) {
    const struct ft_spot before = last_spot(spots, first);
    int code = SQLITE_ROW;
    if (one_by_one) FT_TRY(ft_database_bound(source->database, bind_after(statement, &before)));
    while ((code = sqlite3_step(statement)) == SQLITE_ROW)
      FT_TRY(add_spot(statement, source->layer, spots));
    if (code != SQLITE_DONE) return ft_database_fail(source->database, "trials cannot be read");
    const struct ft_spot after = last_spot(spots, first);
    more = one_by_one && order_spots(&before, &after) < 0;
    sqlite3_reset(statement);
  }
  return FT_OK;
}

static int spots_from(struct ft_store *store, struct ft_source_of_rows *source, const char *sql,
                      const char *const texts[3], struct ft_spots *spots) {
  sqlite3_stmt *statement = NULL;
  int status = ft_database_prepare(source->database, sql, &statement);
  if (status == FT_OK) {
    const int wanted = sqlite3_bind_parameter_count(statement);
    int failed = SQLITE_OK;
    for (int i = 0; i < wanted && i < 3; i++) failed |= ft_bind_text(statement, i + 1, texts[i]);
    status = ft_database_bound(source->database, failed);
    if (status == FT_OK) status = step_spots(statement, source, spots);
  }
  ft_database_done(statement);
  if (status == FT_E_CACHE) ft_store_report(store, source->database, FT_FAULT_READ);
  return status == FT_E_MEMORY ? status : FT_OK;
}

int ft_store_spots(struct ft_store *store, const char *sql, const char *const texts[3],
                   int last_layer, struct ft_spots *spots) {
  struct ft_sources sources;
  *spots = (struct ft_spots){0};
  ft_store_sources(store, FT_KIND_TUNING, &sources);
  int status = FT_OK;
  for (int i = 0; status == FT_OK && i < sources.count; i++)
    if (last_layer < 0 || sources.at[i].layer <= last_layer)
      status = spots_from(store, &sources.at[i], sql, texts, spots);
  if (status != FT_OK) ft_spots_free(spots);
  if (spots->count > 1) qsort(spots->at, spots->count, sizeof *spots->at, order_spots);
  return status;
}

void ft_spots_free(struct ft_spots *spots) {
  for (size_t i = 0; i < spots->count; i++) {
    free(spots->at[i].bucket);
    free(spots->at[i].device);
  }
  free(spots->at);
  *spots = (struct ft_spots){0};
}
