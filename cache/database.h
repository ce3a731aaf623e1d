/* database.h: one SQLite file of ours: opened with care, its statements, its write transactions.
 * in -> out: a path and how far to trust it -> a connection; SQL literals -> prepared statements.
 * Not thread-safe: the store's lock guards it. */
#ifndef CACHE_DATABASE_H
#define CACHE_DATABASE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "generator/text.h"

enum ft_database_mode {
  FT_DATABASE_USER,        /* read and write; made and migrated when needed; links are refused */
  FT_DATABASE_FROZEN,      /* read-only and immutable: no locks, no journal, no write-ahead log */
  FT_DATABASE_FOREIGN,     /* read-only, maybe in use by others; a log may be left beside it */
  FT_DATABASE_NAMED,       /* likewise a file that a user names; one at rest is left alone */
  FT_DATABASE_FRESH_USER,  /* an empty file that nobody sees yet, to become a user file */
  FT_DATABASE_FRESH_LAYER, /* likewise, to be shipped: no write-ahead log, no free pages */
  FT_DATABASE_LOOK,        /* read-only and immutable, whosever it is: to see what lies there */
  FT_DATABASE_REMAINS,     /* a copy of a damaged file, to read what can be read */
  FT_DATABASE_OVERWRITE,   /* a damaged file whose content is going to be replaced as a whole */
  FT_DATABASE_MEMORY       /* path is NULL, and is so in this mode alone */
};

enum { FT_PREPARED_MAX = 32, FT_IMAGE_LIMIT = 64 << 20, FT_LOG_LIMIT = 1 << 20 };

/* Sound rows that this version cannot read, met since they were last told of (store_skipped.c). */
struct ft_skipped {
  uint64_t *rows; /* the begin of each one's digest; a row that was met twice stands there twice */
  size_t count, capacity;
  char reason[192]; /* of the first */
};

struct ft_database {
  sqlite3 *handle; /* NULL: not open */
  char *path;      /* owned; NULL for memory */
  bool writable;
  unsigned reported; /* faults that a warning was given for: kept when closed */
  int code; /* SQLite's code of the last failure, 0 when SQLite had none: kept when closed */
  int64_t step_budget, steps_left; /* of a file of others: what a statement may take; 0: no limit */
  int version;                     /* of the schema of a file of others */
  struct ft_skipped skipped;
  struct {
    const char *sql; /* a literal: told apart by address */
    sqlite3_stmt *statement;
  } prepared[FT_PREPARED_MAX];
};

/* FT_E_CACHE with a detail that names the file. A file of another application or of a newer version
 * is refused before anything could write to it. */
int ft_database_open(struct ft_database *database, const char *path, enum ft_database_mode mode);

/* The same for the bytes of a file that was read as a whole, as FT_DATABASE_FROZEN; path names it.
 * Takes bytes, which came from sqlite3_malloc64, in any case. */
int ft_database_open_bytes(struct ft_database *database, const char *path, void *bytes,
                           size_t size);

/* A copy as that function takes it; NULL: no memory for it. */
void *ft_database_bytes(const void *bytes, size_t size);

void ft_database_close(struct ft_database *database);

/* Its path, "memory" for one without. For messages. */
const char *ft_database_name(const struct ft_database *database);

/* The statement of a literal, ready to bind; give it back with ft_database_done. */
int ft_database_prepare(struct ft_database *database, const char *sql, sqlite3_stmt **statement);
void ft_database_done(sqlite3_stmt *statement); /* NULL is fine */

/* FT_OK unless a bind failed (`failed`: its codes, or-ed): a value that was not bound is NULL, and
 * the statement must not run. */
int ft_database_bound(struct ft_database *database, int failed);

/* Steps a statement that returns no rows. */
int ft_database_run(struct ft_database *database, sqlite3_stmt *statement, const char *doing);

/* FT_E_CACHE (FT_E_MEMORY when that is the cause) with "path: doing: SQLite's message". */
int ft_database_fail(struct ft_database *database, const char *doing);

/* First column of a statement without parameters. */
int ft_database_number(struct ft_database *database, const char *sql, int64_t *number);

/* BEGIN IMMEDIATE, waiting up to patience_ms for other writers. Never a deferred transaction: one
 * that reads first and then writes fails under contention whatever the timeout. */
int ft_database_begin(struct ft_database *database, int patience_ms);
/* SQLite's code says: others hold the file, or memory is short. */
bool ft_code_is_held(int code);
bool ft_code_is_memory(int code);
bool ft_database_is_busy(struct ft_database *database); /* why it just failed: others write */
int ft_database_commit(struct ft_database *database);   /* rolls back on failure */
void ft_database_rollback(struct ft_database *database);

/* The file was renamed or deleted under the open connection. */
bool ft_database_moved(struct ft_database *database);

/* The last failure was one of the file's content. Every other (I/O, memory, a full disk, locks)
 * says nothing of the content: the next attempt may find it sound. */
bool ft_database_is_damaged(const struct ft_database *database);

/* From now on a transaction is on the disk when its commit returns. Without this a loss of power
 * may take the last transactions of a write-ahead log; never the file's soundness. */
int ft_database_make_durable(struct ft_database *database);

/* PRAGMA integrity_check (quick: quick_check). Tell the failures apart by ft_database_is_damaged.
 */
int ft_database_check(struct ft_database *database, bool quick);

/* The SQL of all tables and indexes, to compare with that of another file; appended to text. */
int ft_database_schema(struct ft_database *database, struct ft_text *text);

/* Replaces the whole content of `database`, whatever it is, by that of `by`: one transaction, with
 * the locks and the journal of every other write. */
int ft_database_overwrite(struct ft_database *database, struct ft_database *by, int patience_ms);

#endif
