/* database_file.c: the bytes of a database file that connections may have open.
 * in -> out: path -> its first bytes, whether all of it can be read, a copy. */
#include "cache/database_file.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/database.h"
#include "generator/status.h"

enum { CHUNK = 1 << 16 };

struct opened {
  const char *path;
  const char *name; /* the path as SQLite's file layer wants it */
  sqlite3_file *file;
  int64_t size;
  int code;
};

static void close_file(struct opened *opened) {
  if (opened->file && opened->file->pMethods) opened->file->pMethods->xClose(opened->file);
  if (opened->name) sqlite3_free_filename((char *)(uintptr_t)opened->name);
  free(opened->file);
}

static int fail(const struct opened *opened) {
  if (ft_code_is_memory(opened->code))
    return ft_fail(FT_E_MEMORY, "no memory to read '%s'", opened->path);
  return ft_fail(FT_E_CACHE, "'%s' cannot be read: %s", opened->path, sqlite3_errstr(opened->code));
}

static int open_file(struct opened *opened, const char *path) {
  sqlite3_vfs *const vfs = sqlite3_vfs_find(NULL);
  const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_NOFOLLOW;
  *opened = (struct opened){.path = path, .code = SQLITE_NOMEM};
  /* Without a VFS SQLite could not be initialised: there was no memory for that. */
  if (vfs) opened->file = calloc(1, (size_t)vfs->szOsFile);
  if (vfs) opened->name = sqlite3_create_filename(path, "", "", 0, NULL);
  sqlite3_int64 size = 0;
  if (opened->file && opened->name)
    opened->code = vfs->xOpen(vfs, opened->name, opened->file, flags, NULL);
  if (opened->code == SQLITE_OK)
    opened->code = opened->file->pMethods->xFileSize(opened->file, &size);
  opened->size = size;
  return opened->code == SQLITE_OK ? FT_OK : fail(opened);
}

/* Reads what is there, up to `room` bytes. */
static int read_at(struct opened *opened, void *bytes, size_t room, int64_t at, size_t *length) {
  const int64_t left = opened->size > at ? opened->size - at : 0;
  *length = left < (int64_t)room ? (size_t)left : room;
  if (*length == 0) return FT_OK;
  opened->code = opened->file->pMethods->xRead(opened->file, bytes, (int)*length, at);
  return opened->code == SQLITE_OK ? FT_OK : fail(opened);
}

int ft_file_begin(const char *path, void *bytes, size_t room, size_t *length, int *code) {
  struct opened opened;
  *length = 0;
  int status = open_file(&opened, path);
  if (status == FT_OK) status = read_at(&opened, bytes, room, 0, length);
  *code = opened.code;
  close_file(&opened);
  return status;
}

static int write_all(int to, const char *bytes, size_t length, int *code) {
  while (length > 0) {
    const ssize_t written = write(to, bytes, length);
    if (written < 0) {
      *code = errno == ENOSPC ? SQLITE_FULL : SQLITE_IOERR;
      return ft_fail(FT_E_CACHE, "a copy cannot be written: %s", strerror(errno));
    }
    bytes += written;
    length -= (size_t)written;
  }
  return FT_OK;
}

/* to -1: only reads. */
static int pour(struct opened *opened, int to) {
  char *const chunk = malloc(CHUNK);
  if (!chunk) {
    opened->code = SQLITE_NOMEM;
    return fail(opened);
  }
  int status = FT_OK;
  for (int64_t at = 0; status == FT_OK && at < opened->size; at += CHUNK) {
    size_t length = 0;
    status = read_at(opened, chunk, CHUNK, at, &length);
    if (status == FT_OK && to >= 0) status = write_all(to, chunk, length, &opened->code);
  }
  free(chunk);
  return status;
}

int ft_file_copy(const char *path, int to, int *code) {
  struct opened opened;
  int status = open_file(&opened, path);
  if (status == FT_OK) status = pour(&opened, to);
  *code = opened.code;
  close_file(&opened);
  return status;
}

int ft_file_readable(const char *path, int *code) {
  return ft_file_copy(path, -1, code);
}
