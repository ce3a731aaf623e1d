/* file_layer.c: a file layer of SQLite over the one that is there, with a word in every operation.
 * in -> out: an operation of SQLite -> the same of the layer below, or the code with which the
 * function refuses it. */
#include "tests/file_layer.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

struct layer_file {
  sqlite3_file base;
  const char *path;
  int flags;
  sqlite3_file *file; /* of the layer below; lies behind this struct */
};

static sqlite3_vfs shim, *below;
static struct file_layer layer;

int file_operation_failure(enum file_operation operation) {
  static const int codes[] = {[FILE_OPEN] = SQLITE_CANTOPEN,
                              [FILE_DELETE] = SQLITE_IOERR_DELETE,
                              [FILE_ACCESS] = SQLITE_IOERR_ACCESS,
                              [FILE_READ] = SQLITE_IOERR_READ,
                              [FILE_WRITE] = SQLITE_FULL,
                              [FILE_TRUNCATE] = SQLITE_IOERR_TRUNCATE,
                              [FILE_SYNC] = SQLITE_IOERR_FSYNC,
                              [FILE_SIZE] = SQLITE_IOERR_FSTAT,
                              [FILE_LOCK] = SQLITE_IOERR_LOCK,
                              [FILE_CHECK_LOCK] = SQLITE_IOERR_CHECKRESERVEDLOCK,
                              [FILE_SHARED_MEMORY] = SQLITE_IOERR_SHMMAP};
  return codes[operation];
}

static struct layer_file *of(sqlite3_file *file) {
  return (struct layer_file *)(void *)file;
}

static int ask(sqlite3_file *file, enum file_operation operation, const void *data, int length,
               int64_t at) {
  return layer.before(&(struct file_call){.operation = operation,
                                          .path = of(file)->path,
                                          .flags = of(file)->flags,
                                          .data = data,
                                          .at = at,
                                          .length = length});
}

#define CALL(file, name, ...) of(file)->file->pMethods->name(of(file)->file, ##__VA_ARGS__)
#define ASK(file, ...)                                                                             \
  do {                                                                                             \
    const int code = ask(file, __VA_ARGS__);                                                       \
    if (code != SQLITE_OK) return code;                                                            \
  } while (0)

static int file_close(sqlite3_file *file) {
  return CALL(file, xClose);
}

static int file_read(sqlite3_file *file, void *to, int count, sqlite3_int64 at) {
  ASK(file, FILE_READ, NULL, count, at);
  return CALL(file, xRead, to, count, at);
}

static int file_write(sqlite3_file *file, const void *from, int count, sqlite3_int64 at) {
  ASK(file, FILE_WRITE, from, count, at);
  return CALL(file, xWrite, from, count, at);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size) {
  ASK(file, FILE_TRUNCATE, NULL, 0, size);
  return CALL(file, xTruncate, size);
}

static int file_sync(sqlite3_file *file, int flags) {
  ASK(file, FILE_SYNC, NULL, 0, 0);
  return CALL(file, xSync, flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size) {
  ASK(file, FILE_SIZE, NULL, 0, 0);
  return CALL(file, xFileSize, size);
}

static int file_lock(sqlite3_file *file, int lock) {
  ASK(file, FILE_LOCK, NULL, 0, 0);
  return CALL(file, xLock, lock);
}

static int file_unlock(sqlite3_file *file, int lock) {
  return CALL(file, xUnlock, lock);
}

static int file_check_lock(sqlite3_file *file, int *locked) {
  ASK(file, FILE_CHECK_LOCK, NULL, 0, 0);
  return CALL(file, xCheckReservedLock, locked);
}

static int file_control(sqlite3_file *file, int operation, void *argument) {
  return CALL(file, xFileControl, operation, argument);
}

static int file_sector(sqlite3_file *file) {
  return CALL(file, xSectorSize);
}

static int file_characteristics(sqlite3_file *file) {
  return layer.promises_nothing ? 0 : CALL(file, xDeviceCharacteristics);
}

static int shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **memory) {
  ASK(file, FILE_SHARED_MEMORY, NULL, 0, 0);
  return CALL(file, xShmMap, page, size, extend, memory);
}

static int shm_lock(sqlite3_file *file, int offset, int count, int flags) {
  return CALL(file, xShmLock, offset, count, flags);
}

static void shm_barrier(sqlite3_file *file) {
  CALL(file, xShmBarrier);
}

static int shm_unmap(sqlite3_file *file, int delete_it) {
  return CALL(file, xShmUnmap, delete_it);
}

static const sqlite3_io_methods methods = {.iVersion = 2,
                                           .xClose = file_close,
                                           .xRead = file_read,
                                           .xWrite = file_write,
                                           .xTruncate = file_truncate,
                                           .xSync = file_sync,
                                           .xFileSize = file_size,
                                           .xLock = file_lock,
                                           .xUnlock = file_unlock,
                                           .xCheckReservedLock = file_check_lock,
                                           .xFileControl = file_control,
                                           .xSectorSize = file_sector,
                                           .xDeviceCharacteristics = file_characteristics,
                                           .xShmMap = shm_map,
                                           .xShmLock = shm_lock,
                                           .xShmBarrier = shm_barrier,
                                           .xShmUnmap = shm_unmap};

static int open_below(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                      int *out_flags) {
  struct layer_file *const opened = of(file);
  (void)vfs;
  *opened = (struct layer_file){.path = name, .flags = flags};
  ASK(file, FILE_OPEN, NULL, 0, 0);
  opened->file = (sqlite3_file *)(void *)(opened + 1);
  const int code = below->xOpen(below, name, opened->file, flags, out_flags);
  if (opened->file->pMethods) opened->base.pMethods = &methods;
  return code;
}

static int delete_below(sqlite3_vfs *vfs, const char *name, int sync) {
  (void)vfs;
  const int code = layer.before(&(struct file_call){.operation = FILE_DELETE, .path = name});
  return code != SQLITE_OK ? code : below->xDelete(below, name, sync);
}

static int access_below(sqlite3_vfs *vfs, const char *name, int flags, int *result) {
  (void)vfs;
  const int code = layer.before(&(struct file_call){.operation = FILE_ACCESS, .path = name});
  return code != SQLITE_OK ? code : below->xAccess(below, name, flags, result);
}

/* Programs that are no tests of Check use it, too. */
static void must(bool done, const char *what) {
  if (done) return;
  fprintf(stderr, "file_layer: %s\n", what);
  abort();
}

void file_layer_begin(const struct file_layer *given) {
  below = sqlite3_vfs_find(NULL);
  must(below != NULL, "SQLite has no file layer");
  must(below != &shim, "one file layer of tests at a time");
  layer = *given;
  shim = *below;
  shim.zName = layer.name;
  shim.szOsFile = (int)sizeof(struct layer_file) + below->szOsFile;
  shim.xOpen = open_below;
  shim.xDelete = delete_below;
  shim.xAccess = access_below;
  must(sqlite3_vfs_register(&shim, 1) == SQLITE_OK, "cannot be registered");
}
