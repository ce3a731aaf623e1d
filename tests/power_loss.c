/* power_loss.c: SQLite's file layer that remembers what a disk would have lost.
 * in -> out: writes and syncs -> files as they may lie there after the power went. */
#include "tests/power_loss.h"

#include <check.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILES_MOST = 64, WRITES_MOST = 8192, SECTOR = 512 };

struct content {
  unsigned char *data;
  int64_t size;
};

struct change { /* that no sync has confirmed; data NULL: cut to `at` bytes */
  int64_t at;
  struct content bytes;
};

struct disk_file {
  char path[256];
  bool there;            /* not deleted */
  struct content synced; /* what is sure to lie there */
  struct change *changes;
  int count;
};

struct shim_file {
  sqlite3_file base;
  struct disk_file *disk; /* NULL: of no interest */
  sqlite3_file *file;     /* of the layer below; lies behind this struct */
};

static sqlite3_vfs shim, *below;
static struct disk_file disk[FILES_MOST];
static long operations, power_ends;

/* -- what lies on the disk ------------------------------------------------------------------ */

static void resize(struct content *content, int64_t size) {
  if (size > content->size) {
    content->data = realloc(content->data, (size_t)size);
    ck_assert_ptr_nonnull(content->data);
    memset(content->data + content->size, 0, (size_t)(size - content->size));
  }
  content->size = size;
}

static void place(struct content *content, int64_t at, const unsigned char *data, int64_t length) {
  if (at + length > content->size) resize(content, at + length);
  memcpy(content->data + at, data, (size_t)length);
}

static void forget_changes(struct disk_file *file) {
  for (int i = 0; i < file->count; i++) free(file->changes[i].bytes.data);
  file->count = 0;
}

static void note(struct disk_file *file, int64_t at, const void *data, int length) {
  if (!file) return;
  ck_assert_int_lt(file->count, WRITES_MOST);
  if (!file->changes) file->changes = calloc(WRITES_MOST, sizeof *file->changes);
  struct change *const change = &file->changes[file->count++];
  *change = (struct change){.at = at};
  if (data) place(&change->bytes, 0, data, length);
}

static void apply(struct content *content, const struct change *change, int64_t length) {
  if (!change->bytes.data)
    resize(content, change->at);
  else
    place(content, change->at, change->bytes.data, length);
}

static void confirm(struct disk_file *file) {
  if (!file) return;
  for (int i = 0; i < file->count; i++)
    apply(&file->synced, &file->changes[i], file->changes[i].bytes.size);
  forget_changes(file);
}

static struct content read_whole(const char *path) {
  struct content content = {NULL, 0};
  FILE *const file = fopen(path, "rb");
  if (!file) return content;
  fseek(file, 0, SEEK_END);
  resize(&content, ftell(file));
  rewind(file);
  ck_assert_uint_eq(fread(content.data, 1, (size_t)content.size, file), (size_t)content.size);
  fclose(file);
  return content;
}

static struct disk_file *find(const char *path, bool make) {
  for (int i = 0; i < FILES_MOST; i++) {
    if (disk[i].path[0] && strcmp(disk[i].path, path) == 0) return &disk[i];
    if (disk[i].path[0] || !make) continue;
    snprintf(disk[i].path, sizeof disk[i].path, "%s", path);
    disk[i].there = true;
    disk[i].synced = read_whole(path);
    return &disk[i];
  }
  ck_assert_msg(!make, "too many files");
  return NULL;
}

/* False: the power has gone. */
static bool has_power(void) {
  operations++;
  return power_ends == 0 || operations < power_ends;
}

/* -- the layer ------------------------------------------------------------------------------ */

static struct shim_file *shim_of(sqlite3_file *file) {
  return (struct shim_file *)(void *)file;
}

#define BELOW(file)           shim_of(file)->file
#define CALL(file, name, ...) BELOW(file)->pMethods->name(BELOW(file), ##__VA_ARGS__)

static int file_close(sqlite3_file *file) {
  return CALL(file, xClose);
}

static int file_read(sqlite3_file *file, void *to, int count, sqlite3_int64 at) {
  return CALL(file, xRead, to, count, at);
}

static int file_write(sqlite3_file *file, const void *from, int count, sqlite3_int64 at) {
  if (!has_power()) return SQLITE_IOERR_WRITE;
  note(shim_of(file)->disk, at, from, count);
  return CALL(file, xWrite, from, count, at);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size) {
  if (!has_power()) return SQLITE_IOERR_TRUNCATE;
  note(shim_of(file)->disk, size, NULL, 0);
  return CALL(file, xTruncate, size);
}

static int file_sync(sqlite3_file *file, int flags) {
  if (!has_power()) return SQLITE_IOERR_FSYNC;
  confirm(shim_of(file)->disk);
  return CALL(file, xSync, flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size) {
  return CALL(file, xFileSize, size);
}

static int file_lock(sqlite3_file *file, int lock) {
  return CALL(file, xLock, lock);
}

static int file_unlock(sqlite3_file *file, int lock) {
  return CALL(file, xUnlock, lock);
}

static int file_check_lock(sqlite3_file *file, int *locked) {
  return CALL(file, xCheckReservedLock, locked);
}

static int file_control(sqlite3_file *file, int operation, void *argument) {
  return CALL(file, xFileControl, operation, argument);
}

static int file_sector(sqlite3_file *file) {
  return CALL(file, xSectorSize);
}

/* None of the promises of a good disk: writes are torn. */
static int file_characteristics(sqlite3_file *file) {
  (void)file;
  return 0;
}

static int shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **memory) {
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
  const int kept = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL;
  struct shim_file *const opened = shim_of(file);
  (void)vfs;
  opened->base.pMethods = NULL;
  opened->disk = NULL;
  opened->file = (sqlite3_file *)(void *)(opened + 1);
  if ((flags & SQLITE_OPEN_CREATE) && access(name ? name : "", F_OK) != 0 && !has_power())
    return SQLITE_CANTOPEN;
  if (name && (flags & kept)) {
    opened->disk = find(name, true);
    opened->disk->there = true;
  }
  const int code = below->xOpen(below, name, opened->file, flags, out_flags);
  if (opened->file->pMethods) opened->base.pMethods = &methods;
  return code;
}

static int delete_below(sqlite3_vfs *vfs, const char *name, int sync) {
  (void)vfs;
  if (!has_power()) return SQLITE_IOERR_DELETE;
  struct disk_file *const file = find(name, false);
  if (file) {
    forget_changes(file);
    resize(&file->synced, 0);
    file->there = false;
  }
  return below->xDelete(below, name, sync);
}

/* -- public --------------------------------------------------------------------------------- */

void power_loss_begin(void) {
  below = sqlite3_vfs_find(NULL);
  ck_assert_ptr_nonnull(below);
  shim = *below;
  shim.zName = "power loss";
  shim.szOsFile = (int)sizeof(struct shim_file) + below->szOsFile;
  shim.xOpen = open_below;
  shim.xDelete = delete_below;
  ck_assert_int_eq(sqlite3_vfs_register(&shim, 1), SQLITE_OK);
}

void power_loss_reset(void) {
  for (int i = 0; i < FILES_MOST; i++) {
    forget_changes(&disk[i]);
    free(disk[i].changes);
    free(disk[i].synced.data);
    disk[i] = (struct disk_file){.count = 0};
  }
  operations = power_ends = 0;
}

long power_loss_count(void) {
  return operations;
}

void power_loss_at(long operation) {
  power_ends = operation;
}

static uint64_t next(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *state >> 33;
}

static void write_whole(const struct disk_file *file) {
  FILE *const out = fopen(file->path, "wb");
  ck_assert_msg(out != NULL, "%s", file->path);
  if (file->synced.size > 0)
    ck_assert_uint_eq(fwrite(file->synced.data, 1, (size_t)file->synced.size, out),
                      (size_t)file->synced.size);
  fclose(out);
}

void power_loss_happen(uint64_t seed) {
  for (int i = 0; i < FILES_MOST; i++) {
    struct disk_file *const file = &disk[i];
    if (!file->path[0] || !file->there) continue;
    for (int k = 0; k < file->count; k++) {
      const struct change *const change = &file->changes[k];
      const uint64_t fate = next(&seed) % 3;
      const int64_t sectors = change->bytes.size / SECTOR;
      if (fate == 0) continue; /* lost */
      const int64_t torn = sectors > 0 ? (int64_t)(next(&seed) % (uint64_t)sectors) * SECTOR : 0;
      apply(&file->synced, change, fate == 1 ? change->bytes.size : torn);
    }
    write_whole(file);
  }
}
