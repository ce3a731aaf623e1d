/* database_use.c: statements, write transactions and faults of an open file.
 * in -> out: SQL literals -> prepared statements; SQLite's codes -> ours, with the file named. */
#include "cache/database.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/database_file.h"
#include "generator/clock.h"
#include "generator/status.h"

enum { BUSY_PATIENCE_MS = 30000, BUSY_PAUSE_MS = 5 };

const char *ft_database_name(const struct ft_database *database) {
  return database->path ? database->path : "memory";
}

int ft_database_fail(struct ft_database *database, const char *doing) {
  const int code = database->handle ? sqlite3_extended_errcode(database->handle) : SQLITE_NOMEM;
  database->code = code;
  return ft_fail(ft_code_is_memory(code) ? FT_E_MEMORY : FT_E_CACHE, "%s: %s: %s (%d)",
                 ft_database_name(database), doing,
                 database->handle ? sqlite3_errmsg(database->handle) : sqlite3_errstr(code), code);
}

int ft_database_prepare(struct ft_database *database, const char *sql, sqlite3_stmt **statement) {
  int slot = 0;
  *statement = NULL;
  if (database->steps_left < 0)
    return ft_fail(FT_E_CACHE, "%s: takes too long to read; not used any more", database->path);
  database->steps_left = database->step_budget;
  while (slot < FT_PREPARED_MAX - 1 && database->prepared[slot].sql &&
         database->prepared[slot].sql != sql)
    slot++;
  if (database->prepared[slot].sql != sql) {
    /* The last slot is shared by whatever finds no other. */
    sqlite3_finalize(database->prepared[slot].statement);
    database->prepared[slot].statement = NULL;
    database->prepared[slot].sql = NULL;
    if (sqlite3_prepare_v3(database->handle, sql, -1, SQLITE_PREPARE_PERSISTENT,
                           &database->prepared[slot].statement, NULL) != SQLITE_OK)
      return ft_database_fail(database, "cannot be read");
    database->prepared[slot].sql = sql;
  }
  *statement = database->prepared[slot].statement;
  return FT_OK;
}

void ft_database_done(sqlite3_stmt *statement) {
  if (!statement) return;
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
}

int ft_database_bound(struct ft_database *database, int failed) {
  if (failed == SQLITE_OK) return FT_OK;
  database->code = failed; /* the connection itself may know of no error */
  return ft_fail(failed == SQLITE_NOMEM ? FT_E_MEMORY : FT_E_CACHE, "%s: a value cannot be bound",
                 ft_database_name(database));
}

int ft_database_run(struct ft_database *database, sqlite3_stmt *statement, const char *doing) {
  const int code = sqlite3_step(statement);
  const int status = code == SQLITE_DONE ? FT_OK : ft_database_fail(database, doing);
  ft_database_done(statement);
  return status;
}

int ft_database_number(struct ft_database *database, const char *sql, int64_t *number) {
  sqlite3_stmt *statement = NULL;
  *number = 0;
  if (sqlite3_prepare_v2(database->handle, sql, -1, &statement, NULL) != SQLITE_OK ||
      sqlite3_step(statement) != SQLITE_ROW) {
    const int status = ft_database_fail(database, "cannot be read");
    sqlite3_finalize(statement);
    return status;
  }
  *number = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return FT_OK;
}

bool ft_code_is_held(int code) {
  const uint64_t held = 1 << SQLITE_BUSY | 1 << SQLITE_LOCKED | 1 << SQLITE_PROTOCOL;
  return held >> (code & 0x3F) & 1;
}

bool ft_code_is_memory(int code) {
  return (code & 0xFF) == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM;
}

bool ft_database_is_busy(struct ft_database *database) {
  return ft_code_is_held(sqlite3_errcode(database->handle));
}

/* SQLite's own waiting leaves out the cases in which waiting inside it could deadlock (recovery of
 * a log, a change of journal): those are tried again here. */
int ft_database_begin(struct ft_database *database, int patience_ms) {
  const struct timespec nap = {0, BUSY_PAUSE_MS * 1000000L};
  const double deadline = ft_seconds_now() + 1e-3 * patience_ms;
  sqlite3_busy_timeout(database->handle, patience_ms);
  int code;
  for (;;) {
    code = sqlite3_exec(database->handle, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (!ft_code_is_held(code) || ft_seconds_now() >= deadline) break;
    nanosleep(&nap, NULL);
  }
  const int status = code == SQLITE_OK ? FT_OK : ft_database_fail(database, "cannot be written");
  sqlite3_busy_timeout(database->handle, BUSY_PATIENCE_MS);
  return status;
}

int ft_database_commit(struct ft_database *database) {
  if (sqlite3_exec(database->handle, "COMMIT", NULL, NULL, NULL) == SQLITE_OK) return FT_OK;
  const int status = ft_database_fail(database, "cannot be written");
  ft_database_rollback(database);
  return status;
}

/* Some faults (disk full, I/O) have already rolled back: rolling back again would only be an error.
 */
void ft_database_rollback(struct ft_database *database) {
  if (sqlite3_get_autocommit(database->handle) == 0)
    sqlite3_exec(database->handle, "ROLLBACK", NULL, NULL, NULL);
}

int ft_database_make_durable(struct ft_database *database) {
  if (sqlite3_exec(database->handle, "PRAGMA synchronous=FULL", NULL, NULL, NULL) == SQLITE_OK)
    return FT_OK;
  return ft_database_fail(database, "cannot be opened");
}

bool ft_database_moved(struct ft_database *database) {
  int moved = 0; /* stays so where it is not known */
  sqlite3_file_control(database->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

bool ft_database_is_damaged(const struct ft_database *database) {
  const int code = database->code & 0xFF;
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}

static int check_once(struct ft_database *database, const char *sql) {
  sqlite3_stmt *statement = NULL;
  if (sqlite3_prepare_v2(database->handle, sql, -1, &statement, NULL) != SQLITE_OK ||
      sqlite3_step(statement) != SQLITE_ROW) {
    const int status = ft_database_fail(database, "cannot be checked");
    sqlite3_finalize(statement);
    return status;
  }
  const char *const verdict = (const char *)sqlite3_column_text(statement, 0);
  int status = FT_OK;
  if (!verdict) {
    status = ft_database_fail(database, "cannot be checked");
  } else if (strcmp(verdict, "ok") != 0) {
    database->code = SQLITE_CORRUPT;
    status = ft_fail(FT_E_CACHE, "%s: is damaged: %s", ft_database_name(database), verdict);
  }
  sqlite3_finalize(statement);
  return status;
}

/* SQLite words a failed read as a finding like any other. So a finding counts if the file can be
 * read from end to end and the finding is there again. */
int ft_database_check(struct ft_database *database, bool quick) {
  const char *const sql = quick ? "PRAGMA quick_check(1)" : "PRAGMA integrity_check(1)";
  const int status = check_once(database, sql);
  if (status != FT_E_CACHE || !ft_database_is_damaged(database)) return status;
  FT_TRY(ft_file_readable(database->path, &database->code));
  return check_once(database, sql);
}

int ft_database_schema(struct ft_database *database, struct ft_text *text) {
  static const char sql[] = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
  sqlite3_stmt *statement = NULL;
  int code = sqlite3_prepare_v2(database->handle, sql, -1, &statement, NULL);
  while (code == SQLITE_OK || code == SQLITE_ROW) {
    code = sqlite3_step(statement);
    if (code != SQLITE_ROW) break;
    const unsigned char *const one = sqlite3_column_text(statement, 0);
    if (!one) code = SQLITE_NOMEM;
    if (one) ft_text_add(text, "%s;", (const char *)one);
  }
  const int status =
      code == SQLITE_DONE ? ft_text_status(text) : ft_database_fail(database, "cannot be read");
  sqlite3_finalize(statement);
  return status;
}

int ft_database_overwrite(struct ft_database *database, struct ft_database *by, int patience_ms) {
  const struct timespec nap = {0, BUSY_PAUSE_MS * 1000000L};
  const double deadline = ft_seconds_now() + 1e-3 * patience_ms;
  sqlite3_backup *const backup = sqlite3_backup_init(database->handle, "main", by->handle, "main");
  if (!backup) return ft_database_fail(database, "cannot be written");
  int code = sqlite3_backup_step(backup, -1);
  while (ft_code_is_held(code) && ft_seconds_now() < deadline) {
    nanosleep(&nap, NULL);
    code = sqlite3_backup_step(backup, -1);
  }
  if (sqlite3_backup_finish(backup) == SQLITE_OK && code == SQLITE_DONE) return FT_OK;
  database->code = code;
  return ft_fail((code & 0xFF) == SQLITE_NOMEM ? FT_E_MEMORY : FT_E_CACHE,
                 "%s: cannot be written: %s (%d)", database->path, sqlite3_errstr(code), code);
}
