/* store_care.c: looking after the stores: statistics, making room.
 * in -> out: a store -> numbers about it; the least recently used kernels -> deleted. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

/* -- statistics ----------------------------------------------------------------------------- */

static int64_t file_bytes(struct ft_store *store, const char *path) {
  struct stat state;
  if (path && stat(path, &state) == 0) return (int64_t)state.st_size;
  if (path && errno != ENOENT && errno != ENOTDIR) {
    ft_fail(FT_E_CACHE, "the size of '%s' is not known: %s", path, strerror(errno));
    ft_store_fault(store, ft_detail());
  }
  return 0;
}

static void add_number(struct ft_store *store, struct ft_database *database, const char *sql,
                       int64_t *sum) {
  int64_t number = 0;
  if (ft_database_number(database, sql, &number) != FT_OK)
    ft_store_report(store, database, FT_FAULT_READ);
  *sum += number;
}

/* The key under which one trial wins. */
struct race {
  char bucket[256], device[96], policy[48];
};

static struct race race_of(sqlite3_stmt *row, int column) {
  struct race race = {.bucket = ""};
  const char *const bucket = (const char *)sqlite3_column_text(row, column);
  const char *const device = (const char *)sqlite3_column_text(row, column + 1);
  const char *const policy = (const char *)sqlite3_column_text(row, column + 2);
  snprintf(race.bucket, sizeof race.bucket, "%s", bucket ? bucket : "");
  snprintf(race.device, sizeof race.device, "%s", device ? device : "");
  snprintf(race.policy, sizeof race.policy, "%s", policy ? policy : "");
  return race;
}

static bool same_race(const struct race *a, const struct race *b) {
  return strcmp(a->bucket, b->bucket) == 0 && strcmp(a->device, b->device) == 0 &&
         strcmp(a->policy, b->policy) == 0;
}

/* Damaged rows are trials and never win: `verify` tells of them. */
static int count_trials(struct ft_database *database, struct ft_store_stats *stats) {
  static const char sql[] = "SELECT " FT_TRIAL_COLUMNS ", bucket, device, policy FROM trials "
                            "ORDER BY bucket, device, policy";
  sqlite3_stmt *statement = NULL;
  struct race won = {.bucket = ""};
  bool any = false;
  int code = SQLITE_DONE;
  int status = ft_database_prepare(database, sql, &statement);
  while (status == FT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    struct ft_trial trial;
    struct ft_digest identity;
    const int read = ft_row_read_trial(statement, &trial, &identity);
    stats->trials++;
    stats->skipped += read == FT_E_NOT_FOUND;
    if (read == FT_E_NOT_FOUND) ft_store_skip(database, &identity);
    if (read != FT_OK || !ft_outcome_ran(trial.outcome)) continue;
    const struct race race = race_of(statement, 2);
    stats->winners += !any || !same_race(&race, &won);
    won = race;
    any = true;
  }
  if (status == FT_OK && code != SQLITE_DONE)
    status = ft_database_fail(database, "trials cannot be read");
  ft_database_done(statement);
  return status;
}

int ft_store_stats(struct ft_store *store, struct ft_store_stats *stats) {
  struct ft_sources sources;
  *stats = (struct ft_store_stats){0};
  ft_store_enter(store);
  ft_store_sources(store, FT_KIND_TUNING, &sources);
  for (int i = 0; i < sources.count && sources.at[i].layer == 0; i++) {
    if (count_trials(sources.at[i].database, stats) != FT_OK)
      ft_store_report(store, sources.at[i].database, FT_FAULT_READ);
  }
  ft_store_sources(store, FT_KIND_KERNELS, &sources);
  for (int i = 0; i < sources.count && sources.at[i].layer == 0; i++) {
    add_number(store, sources.at[i].database, "SELECT count(*) FROM kernels", &stats->kernels);
    add_number(store, sources.at[i].database, "SELECT coalesce(sum(length(image)), 0) FROM kernels",
               &stats->kernel_bytes);
  }
  stats->tuning_file_bytes = file_bytes(store, store->user[FT_KIND_TUNING].path);
  stats->kernels_file_bytes = file_bytes(store, store->user[FT_KIND_KERNELS].path);
  stats->layers = store->layer_count;
  stats->hits = store->hits;
  stats->misses = store->misses;
  ft_store_tell_skipped(store);
  ft_store_leave(store);
  return FT_OK;
}

/* -- room ----------------------------------------------------------------------------------- */

/* Sizes in whole pages, as they lie in the file: an image of one byte too many takes one more. */
int ft_store_trim(struct ft_database *database, int64_t cap, int64_t *deleted) {
  static const char sql[] =
      "DELETE FROM kernels WHERE id IN (SELECT id FROM (SELECT id, sum((length(image) / 8192 + 2) "
      "* "
      "8192) OVER (ORDER BY used DESC, id DESC) AS total FROM kernels) WHERE total > ?1)";
  sqlite3_stmt *statement = NULL;
  FT_TRY(ft_database_prepare(database, sql, &statement));
  sqlite3_bind_int64(statement, 1, cap); /* a number takes no memory */
  FT_TRY(ft_database_run(database, statement, "kernels cannot be deleted"));
  const int64_t count = sqlite3_changes(database->handle);
  *deleted += count;
  /* Gives the freed pages back to the file system. */
  if (count > 0 && sqlite3_exec(database->handle, "PRAGMA incremental_vacuum", NULL, NULL, NULL))
    return ft_database_fail(database, "kernels cannot be deleted");
  return FT_OK;
}

/* Pages in use: what is free in the file will be filled again before it grows. */
static int measure(struct ft_database *database, int64_t *bytes) {
  return ft_database_number(
      database,
      "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, "
      "pragma_freelist_count, pragma_page_size",
      bytes);
}

/* The limit is for all that the file holds. So images may take what tables, indexes and logs leave
 * of it. Every put calls this: the images are summed up only where the file is too large. */
int ft_store_keep_to(struct ft_database *database, int64_t cap, int64_t rest) {
  int64_t bytes = 0, images = 0, deleted = 0;
  FT_TRY(measure(database, &bytes));
  for (int64_t most = cap; bytes > most; most = rest) {
    FT_TRY(ft_database_number(
        database, "SELECT coalesce(sum((length(image) / 8192 + 2) * 8192), 0) FROM kernels",
        &images));
    if (images == 0) break;
    FT_TRY(ft_store_trim(database, images - (bytes - rest), &deleted));
    FT_TRY(measure(database, &bytes));
  }
  return FT_OK;
}

static int gc_in(struct ft_database *database, int64_t cap, int64_t *deleted) {
  FT_TRY(ft_database_begin(database, 30000));
  const int status = ft_store_trim(database, cap, deleted);
  if (status == FT_OK) return ft_database_commit(database);
  ft_database_rollback(database);
  return status;
}

int ft_store_gc(struct ft_store *store, int64_t cap, int64_t *deleted) {
  struct ft_sources sources;
  int64_t count = 0;
  if (cap < 0)
    return ft_fail(FT_E_ARGUMENT, "cap is %lld bytes; allowed are numbers >= 0", (long long)cap);
  ft_store_enter(store);
  ft_store_sources(store, FT_KIND_KERNELS, &sources);
  int status = FT_OK;
  for (int i = 0; status == FT_OK && i < sources.count && sources.at[i].layer == 0; i++)
    status = sources.at[i].database->writable
                 ? gc_in(sources.at[i].database, cap, &count)
                 : ft_fail(FT_E_CACHE, "'%s' is read-only", sources.at[i].database->path);
  ft_store_leave(store);
  *deleted = status == FT_OK ? count : 0;
  return status;
}
