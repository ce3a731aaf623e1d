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

#include "tests/file_layer.h"

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

static struct disk_file disk[FILES_MOST];
static long operations, power_ends;

/* -- what lies on the disk ------------------------------------------------------------------ */

static void resize(struct content *content, int64_t size) {
  if (size > 0 && size > content->size) {
    content->data = realloc(content->data, (size_t)size);
    ck_assert_ptr_nonnull(content->data);
    memset(content->data + content->size, 0, (size_t)(size - content->size));
  }
  content->size = size;
}

static void place(struct content *content, int64_t at, const unsigned char *data, int64_t length) {
  if (length == 0) return;
  if (at + length > content->size) resize(content, at + length);
  ck_assert_ptr_nonnull(content->data);
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
  ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
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

/* The file of a call, if SQLite keeps data in it. */
static struct disk_file *disk_of(const struct file_call *call, bool make) {
  const int kept = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL;
  return call->path && (call->flags & kept) ? find(call->path, make) : NULL;
}

static int open_one(const struct file_call *call) {
  const char *const path = call->path ? call->path : "";
  if ((call->flags & SQLITE_OPEN_CREATE) && access(path, F_OK) != 0 && !has_power())
    return SQLITE_CANTOPEN;
  struct disk_file *const file = disk_of(call, true);
  if (file) file->there = true;
  return SQLITE_OK;
}

static int delete_one(const struct file_call *call) {
  if (!has_power()) return SQLITE_IOERR_DELETE;
  struct disk_file *const file = find(call->path, false);
  if (file) {
    forget_changes(file);
    resize(&file->synced, 0);
    file->there = false;
  }
  return SQLITE_OK;
}

static int before(const struct file_call *call) {
  switch (call->operation) {
  case FILE_OPEN: return open_one(call);
  case FILE_DELETE: return delete_one(call);
  case FILE_WRITE:
    if (!has_power()) return SQLITE_IOERR_WRITE;
    note(disk_of(call, false), call->at, call->data, call->length);
    return SQLITE_OK;
  case FILE_TRUNCATE:
    if (!has_power()) return SQLITE_IOERR_TRUNCATE;
    note(disk_of(call, false), call->at, NULL, 0);
    return SQLITE_OK;
  case FILE_SYNC:
    if (!has_power()) return SQLITE_IOERR_FSYNC;
    confirm(disk_of(call, false));
    return SQLITE_OK;
  default: return SQLITE_OK;
  }
}

/* -- public --------------------------------------------------------------------------------- */

void power_loss_begin(void) {
  file_layer_begin(
      &(struct file_layer){.name = "power loss", .before = before, .promises_nothing = true});
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
