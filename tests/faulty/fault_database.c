/* fault_database.c: calls of SQLite that fail when a test says so.
 * in -> out: n, code -> the n-th call of SQLite answers that code, and its connection tells it
 * until the next call (fault_calls.h, kind FAULT_DATABASE). Values that cannot be had for lack of
 * memory are NULL. Numbers are bound and had without memory, so those calls are not among them. The
 * linker leads fatune's calls of NAME here as __wrap_NAME (tests/CMakeLists.txt). */
#include <sqlite3.h>
#include <string.h>

#include "tests/faulty/fault_calls.h"

static int code = SQLITE_NOMEM;
static _Thread_local int told; /* what the connection says its last error was; 0: what it knows */

void fault_database_by(int answer) {
  code = answer;
}

static bool fails(void) {
  const bool failing = fault_calls_fails(FAULT_DATABASE);
  told = failing ? code : 0;
  return failing;
}

static bool lacks(void) {
  const bool lacking = fault_calls_fails(FAULT_DATABASE) && code == SQLITE_NOMEM;
  if (lacking) told = SQLITE_NOMEM;
  return lacking;
}

#define ANSWERING(name, parameters, arguments)                                                     \
  int __real_##name parameters;                                                                    \
  int __wrap_##name parameters;                                                                    \
  int __wrap_##name parameters {                                                                   \
    return fails() ? code : __real_##name arguments;                                               \
  }

#define GIVING(type, name, parameters, arguments)                                                  \
  type __real_##name parameters;                                                                   \
  type __wrap_##name parameters;                                                                   \
  type __wrap_##name parameters {                                                                  \
    return lacks() ? NULL : __real_##name arguments;                                               \
  }

#define TELLING(name)                                                                              \
  int __real_##name(sqlite3 *handle);                                                              \
  int __wrap_##name(sqlite3 *handle);                                                              \
  int __wrap_##name(sqlite3 *handle) {                                                             \
    return told ? told : __real_##name(handle);                                                    \
  }

typedef int (*see_row)(void *, int, char **, char **);
typedef void (*destroy)(void *);

ANSWERING(sqlite3_step, (sqlite3_stmt * statement), (statement))
ANSWERING(sqlite3_prepare_v2,
          (sqlite3 * handle, const char *sql, int bytes, sqlite3_stmt **to, const char **rest),
          (handle, sql, bytes, to, rest))
ANSWERING(sqlite3_prepare_v3,
          (sqlite3 * handle, const char *sql, int bytes, unsigned flags, sqlite3_stmt **to,
           const char **rest),
          (handle, sql, bytes, flags, to, rest))
ANSWERING(sqlite3_bind_text,
          (sqlite3_stmt * statement, int at, const char *text, int bytes, destroy done),
          (statement, at, text, bytes, done))
ANSWERING(sqlite3_bind_blob,
          (sqlite3_stmt * statement, int at, const void *data, int bytes, destroy done),
          (statement, at, data, bytes, done))
ANSWERING(sqlite3_bind_blob64,
          (sqlite3_stmt * statement, int at, const void *data, sqlite3_uint64 bytes, destroy done),
          (statement, at, data, bytes, done))
ANSWERING(sqlite3_bind_value, (sqlite3_stmt * statement, int at, const sqlite3_value *value),
          (statement, at, value))
ANSWERING(sqlite3_backup_step, (sqlite3_backup * backup, int pages), (backup, pages))
GIVING(sqlite3_backup *, sqlite3_backup_init,
       (sqlite3 * to, const char *name, sqlite3 *from, const char *their_name),
       (to, name, from, their_name))
GIVING(const unsigned char *, sqlite3_column_text, (sqlite3_stmt * statement, int column),
       (statement, column))
GIVING(const void *, sqlite3_column_blob, (sqlite3_stmt * statement, int column),
       (statement, column))
TELLING(sqlite3_errcode)
TELLING(sqlite3_extended_errcode)

int __real_sqlite3_exec(sqlite3 *handle, const char *sql, see_row see, void *payload, char **why);
int __wrap_sqlite3_exec(sqlite3 *handle, const char *sql, see_row see, void *payload, char **why);

/* To roll back needs nothing, and does not fail. */
int __wrap_sqlite3_exec(sqlite3 *handle, const char *sql, see_row see, void *payload, char **why) {
  if (strcmp(sql, "ROLLBACK") != 0 && fails()) return code;
  return __real_sqlite3_exec(handle, sql, see, payload, why);
}
