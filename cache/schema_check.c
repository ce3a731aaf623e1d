/* schema_check.c: what a file of others may hold and may ask for.
 * in -> out: its schema, its size -> as it must be, or refused; limits. */
#include "cache/schema_check.h"

#include <stdio.h>
#include <string.h>

#include "cache/schema.h"
#include "generator/digest.h"
#include "generator/status.h"
#include "generator/text.h"

enum { ENTRIES_MOST = 64, LENGTH_LEAST = 64 << 10, STEPS_APART = 1000, STEPS_LEAST = 1000000 };

/* -- schema --------------------------------------------------------------------------------- */

/* One line an entry. SQLITE_OK, or why not; a schema of too many entries ends early and so differs.
 */
static int list_entries(sqlite3 *handle, struct ft_text *list) {
  sqlite3_stmt *statement = NULL;
  int code =
      sqlite3_prepare_v2(handle,
                         "SELECT coalesce(type, ''), coalesce(name, ''), coalesce(tbl_name, ''), "
                         "coalesce(sql, '') FROM sqlite_schema "
                         "ORDER BY type, name",
                         -1, &statement, NULL);
  for (int n = 0; code == SQLITE_OK && n <= ENTRIES_MOST; n++) {
    code = sqlite3_step(statement);
    if (code != SQLITE_ROW) break;
    for (int i = 0; i < 4; i++) {
      const char *const text = (const char *)sqlite3_column_text(statement, i);
      if (!text) code = SQLITE_NOMEM; /* of these columns none is NULL */
      if (text) ft_text_append(list, text, (size_t)sqlite3_column_bytes(statement, i));
      ft_text_append(list, i < 3 ? "|" : "\n", 1);
    }
    code = code == SQLITE_ROW ? SQLITE_OK : code;
  }
  sqlite3_finalize(statement);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

static bool is_known(const struct ft_text *has, int version) {
  char hex[FT_DIGEST_HEX];
  const struct ft_digest digest = ft_digest_of(has->data, has->length);
  ft_digest_hex(&digest, hex);
  return strcmp(hex, ft_schema_digest(version)) == 0;
}

/* Does a step make it? What SQLite adds by itself has no SQL. */
static bool belongs(const char *entry, int version) {
  const char *const sql = strstr(entry, "|CREATE ");
  bool made = !sql;
  for (int step = 1; step <= version && !made; step++)
    made = strstr(ft_schema_step(step), sql + 1) != NULL;
  return made;
}

/* The first entry that does not belong there is what there is to tell. Takes the list apart. */
static int refuse(const char *path, char *list, int version) {
  const char *entry = strsep(&list, "\n");
  while (entry && belongs(entry, version)) entry = strsep(&list, "\n");
  return ft_fail(FT_E_CACHE, "'%s' has not the schema of a file of fatune (%s%.80s); left alone",
                 path, entry ? "near " : "it lacks an entry", entry ? entry : "");
}

int ft_schema_check(struct ft_database *database, int version) {
  struct ft_text has = FT_TEXT_INIT;
  int status = list_entries(database->handle, &has) == SQLITE_OK
                   ? ft_text_status(&has)
                   : ft_database_fail(database, "its schema cannot be read");
  if (status == FT_OK && !is_known(&has, version))
    status = refuse(ft_database_name(database), has.data, version);
  ft_text_free(&has);
  return status;
}

/* -- limits --------------------------------------------------------------------------------- */

static int count_steps(void *payload) {
  struct ft_database *const database = payload;
  database->steps_left -= STEPS_APART;
  return database->steps_left < 0;
}

static void lower(sqlite3 *handle, int limit, int64_t most) {
  if (most < sqlite3_limit(handle, limit, -1)) sqlite3_limit(handle, limit, (int)most);
}

void ft_database_restrict(struct ft_database *database, int64_t bytes) {
  sqlite3 *const handle = database->handle;
  lower(handle, SQLITE_LIMIT_LENGTH, bytes > LENGTH_LEAST ? bytes : LENGTH_LEAST);
  lower(handle, SQLITE_LIMIT_SQL_LENGTH, LENGTH_LEAST);
  lower(handle, SQLITE_LIMIT_COLUMN, 64);
  lower(handle, SQLITE_LIMIT_EXPR_DEPTH, 32);
  lower(handle, SQLITE_LIMIT_VDBE_OP, 25000);
  lower(handle, SQLITE_LIMIT_ATTACHED, 0);
  lower(handle, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
  lower(handle, SQLITE_LIMIT_WORKER_THREADS, 0);
  /* A step for each byte: a row takes hundreds of bytes and some tens of steps. */
  database->step_budget = STEPS_LEAST + bytes;
  database->steps_left = database->step_budget;
  sqlite3_progress_handler(handle, STEPS_APART, count_steps, database);
}
