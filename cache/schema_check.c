/* schema_check.c: what a file of others may hold and may ask for.
 * in -> out: its schema, its size -> as it must be, or refused; limits. */
#include "cache/schema_check.h"

#include <stdio.h>
#include <string.h>

#include "cache/schema.h"
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

/* SQLite writes it down itself, so that the two differ in nothing but the schema. */
static int list_expected(int version, struct ft_text *list) {
  sqlite3 *handle = NULL;
  int code =
      sqlite3_open_v2(":memory:", &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
  for (int step = 1; code == SQLITE_OK && step <= version; step++)
    code = sqlite3_exec(handle, ft_schema_step(step), NULL, NULL, NULL);
  if (code == SQLITE_OK) code = list_entries(handle, list);
  sqlite3_close(handle);
  return code == SQLITE_OK ? FT_OK : ft_fail(FT_E_MEMORY, "no memory for a schema");
}

/* The first line that differs is what there is to tell. */
static void first_difference(const char *has, const char *should, char line[80]) {
  size_t begin = 0;
  for (size_t i = 0; has[i] && has[i] == should[i]; i++)
    if (has[i] == '\n') begin = i + 1;
  snprintf(line, 80, "%.*s", (int)strcspn(has + begin, "\n"), has + begin);
}

static int compare(const char *path, const struct ft_text *has, const struct ft_text *should) {
  char line[80];
  FT_TRY(ft_text_status(has));
  FT_TRY(ft_text_status(should));
  const char *const own = has->data ? has->data : ""; /* an empty file has no entries */
  const char *const expected = should->data ? should->data : "";
  if (has->length == should->length && memcmp(own, expected, has->length) == 0) return FT_OK;
  first_difference(own, expected, line);
  return ft_fail(FT_E_CACHE, "'%s' has not the schema of a file of fatune (near '%s'); left alone",
                 path, line);
}

int ft_schema_check(struct ft_database *database, int version) {
  struct ft_text has = FT_TEXT_INIT, should = FT_TEXT_INIT;
  int status = FT_OK;
  if (list_entries(database->handle, &has) != SQLITE_OK)
    FT_GIVE_UP(ft_database_fail(database, "its schema cannot be read"));
  FT_CHECK(list_expected(version, &should));
  FT_CHECK(compare(ft_database_name(database), &has, &should));
done:
  ft_text_free(&has);
  ft_text_free(&should);
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
