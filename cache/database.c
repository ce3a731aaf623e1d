/* database.c: one SQLite file of ours: opened with care, its statements, its write transactions.
 * in -> out: a path and how far to trust it -> a connection; SQL literals -> prepared statements.
 */
#include "cache/database.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/database_file.h"
#include "cache/folders.h"
#include "cache/schema.h"
#include "cache/schema_check.h"
#include "generator/status.h"
#include "generator/text.h"

enum { PATIENCE_MS = 30000, HEADER_BYTES = 100 };

#define FRESH "PRAGMA page_size=8192; PRAGMA journal_mode=MEMORY;"
static const char FROZEN[] = "?immutable=1";

/* -- opening -------------------------------------------------------------------------------- */

/* "file:" name of SQLite: characters with a meaning in it are escaped, so that no path can smuggle
 * in parameters. */
static void add_uri(struct ft_text *uri, const char *path, const char *parameters) {
  ft_text_add(uri, path[0] == '/' ? "file://" : "file:");
  for (; *path; path++) {
    if (strchr("?#%", *path))
      ft_text_add(uri, "%%%02x", (unsigned char)*path);
    else
      ft_text_append(uri, path, 1);
  }
  ft_text_add(uri, "%s", parameters);
}

/* What makes reading a file of unknown origin safe (sqlite.org/security.html): nothing in its
 * schema is run, pages are checked, its pages are not mapped, rows have a limit. */
static int harden(struct ft_database *database) {
  sqlite3 *const handle = database->handle;
  int failed = 0;
  failed |= sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  failed |= sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  failed |= sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
  failed |= sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
  failed |=
      sqlite3_exec(handle, "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0;", NULL, NULL, NULL);
  failed |= sqlite3_busy_timeout(handle, PATIENCE_MS);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, FT_IMAGE_LIMIT + 2 * FT_LOG_LIMIT);
  return failed ? ft_database_fail(database, "cannot be opened") : FT_OK;
}

static int connect_to(struct ft_database *database, const char *path, int flags,
                      const char *parameters) {
  struct ft_text uri = FT_TEXT_INIT;
  add_uri(&uri, path, parameters);
  int status = ft_text_status(&uri);
  if (status == FT_OK) {
    /* The store's lock serialises; SQLite's own mutexes would only cost time. */
    flags |= SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(uri.data, &database->handle, flags, NULL) != SQLITE_OK)
      status = ft_database_fail(database, "cannot be opened");
  }
  ft_text_free(&uri);
  if (status == FT_OK) status = harden(database);
  return status;
}

/* Ours, of a version we know? */
static int judge(const char *name, int64_t application, int64_t version) {
  if (application != FT_APPLICATION_ID)
    return ft_fail(FT_E_CACHE, "'%s' is not a file of fatune (application_id %lld); left alone",
                   name, (long long)application);
  if (version > FT_SCHEMA_VERSION)
    return ft_fail(
        FT_E_CACHE,
        "'%s' was written by a newer fatune (schema %lld, known are 1 .. %d); left alone", name,
        (long long)version, FT_SCHEMA_VERSION);
  if (version < 1) return ft_fail(FT_E_CACHE, "'%s' has no schema version; left alone", name);
  return FT_OK;
}

static int recognise(struct ft_database *database, int64_t *version) {
  int64_t application = 0;
  FT_TRY(ft_database_number(database, "PRAGMA application_id", &application));
  FT_TRY(ft_database_number(database, "PRAGMA user_version", version));
  return judge(ft_database_name(database), application, *version);
}

/* The tables of that version are there, and real tables: a virtual one would run code of a module
 * on every row. */
static int check_tables(struct ft_database *database, int64_t version) {
  int64_t tables = 0;
  FT_TRY(ft_database_number(database,
                            "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND "
                            "rootpage > 0 AND name IN ('trials', 'kernels', 'recipes')",
                            &tables));
  if (tables != (version < 2 ? 2 : 3))
    return ft_fail(FT_E_CACHE, "'%s' lacks a table of fatune; left alone",
                   ft_database_name(database));
  return FT_OK;
}

static uint32_t big_endian(const unsigned char *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Of a file that is ours by its name: does the rest of its header make it one that SQLite takes for
 * such a file, and writes to? */
static bool has_our_form(const unsigned char header[HEADER_BYTES]) {
  static const unsigned char fractions[] = {64, 32, 32};
  return header[18] >= 1 && header[18] <= 2 && header[19] >= 1 && header[19] <= 2 &&
         memcmp(header + 21, fractions, sizeof fractions) == 0 && big_endian(header + 44) <= 4 &&
         big_endian(header + 56) <= 1;
}

/* Looks before a connection that could write exists: even opening and closing another application's
 * file may fold its write-ahead log into it. Our own files have had their header from the first. An
 * empty file is taken: nothing is lost in filling it. */
static int recognise_header(struct ft_database *database, const char *path) {
  unsigned char header[HEADER_BYTES] = {0};
  size_t length = 0;
  FT_TRY(ft_file_begin(path, header, sizeof header, &length, &database->code));
  if (length == 0) return FT_OK;
  if (length < HEADER_BYTES || memcmp(header, "SQLite format 3", 16) != 0) {
    database->code = SQLITE_NOTADB;
    return ft_fail(FT_E_CACHE, "'%s' is not a database; not used", path);
  }
  FT_TRY(judge(path, big_endian(header + 68), big_endian(header + 60)));
  if (has_our_form(header)) return FT_OK;
  database->code = SQLITE_NOTADB;
  return ft_fail(FT_E_CACHE, "'%s' has a damaged header; not used", path);
}

/* Whose file it is comes first, then that nothing in its schema could be run, and only then a row.
 */
static int accept_foreign(struct ft_database *database) {
  int64_t version = 0, pages = 0, page_bytes = 0;
  FT_TRY(recognise(database, &version));
  FT_TRY(ft_database_number(database, "PRAGMA page_count", &pages));
  FT_TRY(ft_database_number(database, "PRAGMA page_size", &page_bytes));
  ft_database_restrict(database, pages * page_bytes);
  database->version = (int)version;
  return ft_schema_check(database, (int)version);
}

static int open_frozen(struct ft_database *database, const char *path) {
  FT_TRY(connect_to(database, path, SQLITE_OPEN_READONLY, FROZEN));
  return accept_foreign(database);
}

/* 0 for a file without anything in it; within a transaction it has a first page already. */
static int version_of(struct ft_database *database, int64_t *version) {
  int64_t entries = 0;
  FT_TRY(ft_database_number(database, "SELECT count(*) FROM sqlite_schema", &entries));
  *version = 0;
  return entries > 0 ? recognise(database, version) : FT_OK;
}

static int migrate(struct ft_database *database) {
  int64_t version = 0;
  FT_TRY(version_of(database, &version));
  if (version > 0) FT_TRY(check_tables(database, version)); /* nothing is written to a wreck */
  if (version == FT_SCHEMA_VERSION) return FT_OK;
  FT_TRY(ft_database_begin(database, PATIENCE_MS));
  /* Another process may have been faster: look again, now that nobody else writes. */
  int status = version_of(database, &version);
  for (int step = (int)version + 1; status == FT_OK && step <= FT_SCHEMA_VERSION; step++)
    if (sqlite3_exec(database->handle, ft_schema_step(step), NULL, NULL, NULL) != SQLITE_OK)
      status = ft_database_fail(database, "the schema cannot be written");
  if (status == FT_OK) return ft_database_commit(database);
  ft_database_rollback(database);
  return status;
}

static void pause_ms(int milliseconds) {
  const struct timespec length = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&length, NULL);
}

/* Switching to a write-ahead log needs the file for itself, and SQLite does not always wait for
 * that: when many processes open a new file at once, some fail unless they try again. Never fatal,
 * and given up after a second: another may read the file for as long as it likes. */
static void set_journal(struct ft_database *database, bool write_ahead) {
  const char *const sql = write_ahead ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE";
  int code = SQLITE_BUSY;
  sqlite3_busy_timeout(database->handle, 0);
  for (int attempt = 0; attempt < 100 && ft_code_is_held(code); attempt++) {
    if (attempt > 0) pause_ms(1 + attempt % 16);
    code = sqlite3_exec(database->handle, sql, NULL, NULL, NULL);
  }
  sqlite3_busy_timeout(database->handle, PATIENCE_MS);
}

/* page_size and auto_vacuum take effect in an empty file only. Set in any other, auto_vacuum would
 * still write a page at every opening. */
static int configure(struct ft_database *database) {
  int64_t pages = 0;
  FT_TRY(ft_database_number(database, "PRAGMA page_count", &pages));
  if (sqlite3_exec(database->handle,
                   pages > 0 ? "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=16777216;"
                             : "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=16777216;"
                               "PRAGMA page_size=8192; PRAGMA auto_vacuum=INCREMENTAL;",
                   NULL, NULL, NULL) != SQLITE_OK)
    return ft_database_fail(database, "cannot be opened");
  return FT_OK;
}

static int open_user(struct ft_database *database, const char *path) {
  char *const folder = strdup(path);
  if (!folder) return ft_fail(FT_E_MEMORY, "no memory for a path");
  strrchr(folder, '/')[1] = '\0';
  int status = FT_OK;

  FT_CHECK(recognise_header(database, path));
  if (euidaccess(folder, W_OK | X_OK) != 0 || euidaccess(path, W_OK) != 0) {
    /* Read-only medium: a write-ahead file there can only be read as immutable. */
    FT_CHECK(open_frozen(database, path));
    goto done;
  }
  FT_CHECK(connect_to(database, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, ""));
  FT_CHECK(configure(database));
  FT_CHECK(migrate(database));
  set_journal(database, ft_folder_is_local(folder));
  database->writable = sqlite3_db_readonly(database->handle, "main") == 0;
done:
  free(folder);
  return status;
}

/* A live file needs its locks and logs; where those cannot be made (read-only medium) the file is
 * at rest, and is read as it lies. */
static int open_foreign(struct ft_database *database, const char *path) {
  int64_t version = 0;
  int status = connect_to(database, path, SQLITE_OPEN_READONLY, "");
  if (status == FT_OK) status = ft_database_number(database, "PRAGMA user_version", &version);
  const int code = database->handle ? sqlite3_errcode(database->handle) & 0xFF : SQLITE_OK;
  if (status != FT_OK && (code == SQLITE_CANTOPEN || code == SQLITE_READONLY)) {
    sqlite3_close(database->handle);
    database->handle = NULL;
    return open_frozen(database, path);
  }
  return status == FT_OK ? accept_foreign(database) : status;
}

/* In the form with a write-ahead log, without one: nobody has it open. */
static int is_at_rest(struct ft_database *database, const char *path, bool *at_rest) {
  unsigned char header[HEADER_BYTES] = {0};
  size_t length = 0;
  char *log = NULL;
  *at_rest = false;
  FT_TRY(ft_file_begin(path, header, sizeof header, &length, &database->code));
  if (length < HEADER_BYTES || header[18] != 2) return FT_OK;
  if (asprintf(&log, "%s-wal", path) < 0) return ft_fail(FT_E_MEMORY, "no memory for a path");
  *at_rest = access(log, F_OK) != 0 && errno == ENOENT;
  free(log);
  return FT_OK;
}

/* Of a file at rest SQLite makes a log even to read it, and takes the log away again only where it
 * could have written. Nothing is written into the file itself. */
static int open_named(struct ft_database *database, const char *path) {
  bool at_rest = false;
  char *const real = realpath(path, NULL);
  if (!real && errno == ENOMEM) return ft_fail(FT_E_MEMORY, "no memory for a path");
  if (!real) return ft_fail(FT_E_CACHE, "'%s' cannot be read: %s", path, strerror(errno));
  int status = is_at_rest(database, real, &at_rest);
  if (status == FT_OK && !at_rest) {
    status = open_foreign(database, path);
  } else if (status == FT_OK && euidaccess(real, W_OK) != 0) {
    status = open_frozen(database, path);
  } else if (status == FT_OK) {
    status = connect_to(database, path, SQLITE_OPEN_READWRITE, "");
    if (status == FT_OK) status = accept_foreign(database);
  }
  free(real);
  return status;
}

/* Nobody sees the file before it is whole, so its journal need not outlive us. */
static int open_fresh(struct ft_database *database, const char *path, const char *pragmas) {
  FT_TRY(connect_to(database, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, ""));
  if (sqlite3_exec(database->handle, pragmas, NULL, NULL, NULL) != SQLITE_OK)
    return ft_database_fail(database, "cannot be opened");
  database->writable = true;
  return migrate(database);
}

static int open_memory(struct ft_database *database) {
  FT_TRY(connect_to(database, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, ""));
  database->writable = true;
  return migrate(database);
}

/* Whatever is wrong with a file that is to be overwritten, it can be locked and written to. Beside
 * a write-ahead log it can be overwritten by pages of the same size alone. */
static int open_overwrite(struct ft_database *database, const char *path) {
  FT_TRY(connect_to(database, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, ""));
  int failed = sqlite3_db_config(database->handle, SQLITE_DBCONFIG_RESET_DATABASE, 1, NULL);
  failed |= sqlite3_exec(database->handle, "PRAGMA page_size=8192", NULL, NULL, NULL);
  if (failed) return ft_database_fail(database, "cannot be opened");
  database->writable = true;
  return FT_OK;
}

static int open_at(struct ft_database *database, const char *path, enum ft_database_mode mode) {
  switch (mode) {
  case FT_DATABASE_USER: return open_user(database, path);
  case FT_DATABASE_FROZEN: return open_frozen(database, path);
  case FT_DATABASE_FOREIGN: return open_foreign(database, path);
  case FT_DATABASE_NAMED: return open_named(database, path);
  case FT_DATABASE_FRESH_USER:
    return open_fresh(database, path, FRESH " PRAGMA auto_vacuum=INCREMENTAL;");
  case FT_DATABASE_FRESH_LAYER:
    /* secure_delete: what is unused of a page is 0 and not what the memory held. */
    return open_fresh(database, path, FRESH " PRAGMA secure_delete=ON;");
  case FT_DATABASE_LOOK: return connect_to(database, path, SQLITE_OPEN_READONLY, FROZEN);
  case FT_DATABASE_REMAINS:
    return connect_to(database, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, "");
  default: return open_overwrite(database, path);
  }
}

int ft_database_open(struct ft_database *database, const char *path, enum ft_database_mode mode) {
  *database = (struct ft_database){.reported = database->reported};
  if (path && !(database->path = strdup(path))) return ft_fail(FT_E_MEMORY, "no memory for a path");
  const int status = path ? open_at(database, path, mode) : open_memory(database);
  if (status != FT_OK) ft_database_close(database);
  return status;
}

void *ft_database_bytes(const void *bytes, size_t size) {
  void *const copy = sqlite3_malloc64(size);
  if (copy) return memcpy(copy, bytes, size);
  ft_fail(FT_E_MEMORY, "no memory for %zu bytes", size);
  return NULL;
}

int ft_database_open_bytes(struct ft_database *database, const char *path, void *bytes,
                           size_t size) {
  const unsigned flags = SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY;
  const sqlite3_int64 length = (sqlite3_int64)size;
  *database = (struct ft_database){.reported = database->reported, .path = strdup(path)};
  int status = database->path ? FT_OK : ft_fail(FT_E_MEMORY, "no memory for a path");
  if (status == FT_OK)
    status = connect_to(database, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, "");
  if (status != FT_OK) {
    sqlite3_free(bytes);
  } else if (sqlite3_deserialize(database->handle, "main", bytes, length, length, flags) !=
             SQLITE_OK) {
    status = ft_database_fail(database, "cannot be opened"); /* SQLite has freed the bytes */
  }
  if (status == FT_OK) status = accept_foreign(database);
  if (status != FT_OK) ft_database_close(database);
  return status;
}

void ft_database_close(struct ft_database *database) {
  for (int i = 0; i < FT_PREPARED_MAX; i++) sqlite3_finalize(database->prepared[i].statement);
  sqlite3_close(database->handle);
  free(database->path);
  free(database->skipped.rows);
  *database = (struct ft_database){.reported = database->reported, .code = database->code};
}
