/* store_named.c: the kernel that a trial names.
 * in -> out: request, target, config -> the key of the kernel that was measured or compiled for
 * them. */
#include <stdlib.h>
#include <string.h>

#include "cache/fields.h"
#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

/* instr spares reading the trials of all other configs. */
static const char NAMED[] =
    "SELECT " FT_TRIAL_COLUMNS " FROM trials WHERE class = ?1 AND target = ?2 AND "
    "(?3 IS NULL OR templates = ?3) AND instr(text, ?4) > 0 ORDER BY bucket = ?5 DESC, id DESC";

struct named {
  const struct ft_query *query;
  const struct ft_config *config;
  char *bucket, *class, *config_text; /* owned */
  struct ft_digest *key;
};

/* A trial that failed to compile names no kernel. */
static bool take_row(struct ft_store *store, struct ft_database *database, sqlite3_stmt *row,
                     const struct named *named) {
  static const struct ft_digest none;
  struct ft_trial trial;
  struct ft_digest identity;
  const int status = ft_row_read_trial(row, &trial, &identity);
  if (status == FT_E_CACHE) ft_store_report(store, database, FT_FAULT_ROW);
  if (status == FT_E_NOT_FOUND) ft_store_skip(database, &identity);
  if (status != FT_OK || ft_config_compare(&trial.config, named->config) != 0 ||
      ft_digest_equal(&trial.kernel, &none))
    return false;
  *named->key = trial.kernel;
  return true;
}

static bool search_in(struct ft_store *store, struct ft_database *database,
                      const struct named *named) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  int code = SQLITE_DONE;
  int status = ft_database_prepare(database, NAMED, &statement);
  if (status == FT_OK) {
    int failed = ft_bind_text(statement, 1, named->class);
    failed |= ft_bind_text(statement, 2, named->query->target);
    if (named->query->templates) failed |= ft_bind_digest(statement, 3, named->query->templates);
    failed |= ft_bind_text(statement, 4, named->config_text);
    failed |= ft_bind_text(statement, 5, named->bucket);
    status = ft_database_bound(database, failed);
  }
  if (status == FT_OK) {
    while (!found && (code = sqlite3_step(statement)) == SQLITE_ROW)
      found = take_row(store, database, statement, named);
    if (!found && code != SQLITE_DONE) status = ft_database_fail(database, "trials cannot be read");
  }
  ft_database_done(statement);
  if (status == FT_E_CACHE) ft_store_report(store, database, FT_FAULT_READ);
  return found;
}

static int write_texts(struct named *named) {
  const struct ft_request bucket = ft_request_bucket(named->query->request);
  struct ft_text config = FT_TEXT_INIT;
  FT_TRY(ft_row_request_text(&bucket, &named->bucket));
  FT_TRY(ft_row_class_text(&bucket, &named->class));
  ft_config_print(named->config, &config);
  named->config_text = config.data;
  return ft_text_status(&config);
}

int ft_store_kernel_of_config(struct ft_store *store, const struct ft_query *query,
                              const struct ft_config *config, struct ft_digest *key) {
  struct named named = {.query = query, .config = config, .key = key};
  struct ft_sources sources;
  bool found = false;
  ft_store_enter(store);
  struct ft_locale locale = ft_locale_plain();
  int status = write_texts(&named);
  ft_store_sources(store, FT_KIND_TUNING, &sources);
  for (int i = 0; status == FT_OK && !found && i < sources.count; i++)
    found = search_in(store, sources.at[i].database, &named);
  ft_locale_restore(&locale);
  ft_store_tell_skipped(store);
  ft_store_leave(store);
  free(named.bucket);
  free(named.class);
  free(named.config_text);
  if (status != FT_OK || found) return status;
  return ft_fail(FT_E_NOT_FOUND, "no trial of that config is known");
}
