/* fault_files.c: SQLite's file layer with a counter: the n-th operation fails.
 * in -> out: operations of SQLite -> those of the layer below, or a failure. */
#include "tests/fault_files.h"

#include <check.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

struct fault_files fault_files;

static sqlite3_vfs shim;
static sqlite3_vfs *below;

struct shim_file {
  sqlite3_file base;
  sqlite3_file *file; /* of the layer below; lies behind this struct */
};

static sqlite3_file *real_of(sqlite3_file *file) {
  return ((struct shim_file *)(void *)file)->file;
}

static bool fails(void) {
  fault_files.count++;
  if (fault_files.fail_at == 0 || fault_files.count < fault_files.fail_at) return false;
  if (!fault_files.sticky && fault_files.count > fault_files.fail_at) return false;
  fault_files.failed++;
  return true;
}

static int code_or(int code) {
  return fault_files.code ? fault_files.code : code;
}

#define FAULT(code)                                                                                \
  do {                                                                                             \
    if (fails()) return code_or(code);                                                             \
  } while (0)

static int file_close(sqlite3_file *file) {
  return real_of(file)->pMethods->xClose(real_of(file));
}

static int file_read(sqlite3_file *file, void *to, int count, sqlite3_int64 at) {
  FAULT(SQLITE_IOERR_READ);
  return real_of(file)->pMethods->xRead(real_of(file), to, count, at);
}

static int file_write(sqlite3_file *file, const void *from, int count, sqlite3_int64 at) {
  FAULT(SQLITE_FULL);
  return real_of(file)->pMethods->xWrite(real_of(file), from, count, at);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size) {
  FAULT(SQLITE_IOERR_TRUNCATE);
  return real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int file_sync(sqlite3_file *file, int flags) {
  FAULT(SQLITE_IOERR_FSYNC);
  return real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size) {
  FAULT(SQLITE_IOERR_FSTAT);
  return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int file_lock(sqlite3_file *file, int lock) {
  FAULT(SQLITE_IOERR_LOCK);
  return real_of(file)->pMethods->xLock(real_of(file), lock);
}

static int file_unlock(sqlite3_file *file, int lock) {
  return real_of(file)->pMethods->xUnlock(real_of(file), lock);
}

static int file_check_lock(sqlite3_file *file, int *locked) {
  FAULT(SQLITE_IOERR_CHECKRESERVEDLOCK);
  return real_of(file)->pMethods->xCheckReservedLock(real_of(file), locked);
}

static int file_control(sqlite3_file *file, int operation, void *argument) {
  return real_of(file)->pMethods->xFileControl(real_of(file), operation, argument);
}

static int file_sector(sqlite3_file *file) {
  return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int file_characteristics(sqlite3_file *file) {
  return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **memory) {
  FAULT(SQLITE_IOERR_SHMMAP);
  return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, memory);
}

static int shm_lock(sqlite3_file *file, int offset, int count, int flags) {
  return real_of(file)->pMethods->xShmLock(real_of(file), offset, count, flags);
}

static void shm_barrier(sqlite3_file *file) {
  real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int shm_unmap(sqlite3_file *file, int delete_it) {
  return real_of(file)->pMethods->xShmUnmap(real_of(file), delete_it);
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
  struct shim_file *const opened = (struct shim_file *)(void *)file;
  (void)vfs;
  opened->base.pMethods = NULL;
  FAULT(SQLITE_CANTOPEN);
  opened->file = (sqlite3_file *)(void *)(opened + 1);
  const int code = below->xOpen(below, name, opened->file, flags, out_flags);
  if (opened->file->pMethods) opened->base.pMethods = &methods;
  return code;
}

static int delete_below(sqlite3_vfs *vfs, const char *name, int sync) {
  (void)vfs;
  FAULT(SQLITE_IOERR_DELETE);
  return below->xDelete(below, name, sync);
}

static int access_below(sqlite3_vfs *vfs, const char *name, int flags, int *result) {
  (void)vfs;
  FAULT(SQLITE_IOERR_ACCESS);
  return below->xAccess(below, name, flags, result);
}

void fault_files_begin(void) {
  below = sqlite3_vfs_find(NULL);
  ck_assert_ptr_nonnull(below);
  shim = *below;
  shim.zName = "fault";
  shim.szOsFile = (int)sizeof(struct shim_file) + below->szOsFile;
  shim.xOpen = open_below;
  shim.xDelete = delete_below;
  shim.xAccess = access_below;
  ck_assert_int_eq(sqlite3_vfs_register(&shim, 1), SQLITE_OK);
  fault_files_arm(0, false, 0);
}

void fault_files_arm(long n, bool sticky, int code) {
  fault_files = (struct fault_files){.fail_at = n, .sticky = sticky, .code = code};
}
