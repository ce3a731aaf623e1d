/* database_use.c: statements, write transactions and faults of an open file.
 * in -> out: SQL literals -> prepared statements; SQLite's codes -> ours, with the file named. */
#include "cache/database.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generator/clock.h"
#include "generator/status.h"

enum { BUSY_PATIENCE_MS = 30000, BUSY_PAUSE_MS = 5 };

int ft_database_fail(struct ft_database *database, const char *doing) {
  const int code = database->handle ? sqlite3_extended_errcode(database->handle) : SQLITE_NOMEM;
  return ft_fail((code & 0xFF) == SQLITE_NOMEM ? FT_E_MEMORY : FT_E_CACHE, "%s: %s: %s (%d)",
                 database->path ? database->path : "memory", doing,
                 database->handle ? sqlite3_errmsg(database->handle) : sqlite3_errstr(code), code);
}

int ft_database_prepare(struct ft_database *database, const char *sql, sqlite3_stmt **statement) {
  int slot = 0;
  *statement = NULL;
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

int ft_database_run(struct ft_database *database, sqlite3_stmt *statement, const char *doing) {
  const int code = sqlite3_step(statement);
  const int status =
      code == SQLITE_DONE || code == SQLITE_ROW ? FT_OK : ft_database_fail(database, doing);
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

static bool is_busy(int code) {
  return (code & 0xFF) == SQLITE_BUSY || (code & 0xFF) == SQLITE_PROTOCOL;
}

bool ft_database_is_busy(struct ft_database *database) {
  return is_busy(sqlite3_errcode(database->handle));
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
    if (!is_busy(code) || ft_seconds_now() >= deadline) break;
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

bool ft_database_moved(struct ft_database *database) {
  int moved = 0;
  const int code = sqlite3_file_control(database->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return code == SQLITE_OK && moved != 0;
}

bool ft_database_intact(struct ft_database *database, bool quick) {
  sqlite3_stmt *statement = NULL;
  const char *const sql = quick ? "PRAGMA quick_check(1)" : "PRAGMA integrity_check(1)";
  bool intact = sqlite3_prepare_v2(database->handle, sql, -1, &statement, NULL) == SQLITE_OK &&
                sqlite3_step(statement) == SQLITE_ROW;
  if (intact) {
    const char *const verdict = (const char *)sqlite3_column_text(statement, 0);
    intact = verdict && strcmp(verdict, "ok") == 0;
  }
  sqlite3_finalize(statement);
  return intact;
}
