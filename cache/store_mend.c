/* store_mend.c: a damaged user file made sound again.
 * in -> out: path -> the same file with its sound rows alone; beside it the file as it was.
 *
 * The file is locked, copied to a name of its own, read from a second copy into a new store, and
 * overwritten by that in one transaction. So other processes may have it open, and a crash leaves
 * either the damaged file or the mended one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/database_file.h"
#include "cache/store_parts.h"
#include "cache/unfinished.h"
#include "generator/status.h"

enum { PATIENCE_MS = 30000, PATIENCE = 4000000, PAGE_BYTES = 8192, SIZE_AT = 28 };

static const char *const companions[] = {"-wal", "-journal", "-shm"};
enum { COMPANIONS = 3 };

struct mending {
  const char *path;
  char *kept;                   /* the damaged file as it was */
  struct ft_unfinished scratch, /* a copy to read from; a write-ahead log is folded into it */
      fresh;                    /* the sound rows */
  struct ft_database damaged, remains, sound;
  int64_t saved;
};

/* -- files ---------------------------------------------------------------------------------- */

static int with_ending(const char *path, const char *ending, char **name) {
  if (asprintf(name, "%s%s", path, ending) >= 0) return FT_OK;
  *name = NULL;
  return ft_fail(FT_E_MEMORY, "no memory for a path");
}

static void remove_companions(const char *path) {
  for (int i = 0; path && i < COMPANIONS; i++) {
    char *name = NULL;
    if (with_ending(path, companions[i], &name) == FT_OK) unlink(name);
    free(name);
  }
}

static void remove_unfinished(struct ft_unfinished *unfinished) {
  remove_companions(unfinished->path);
  ft_unfinished_end(unfinished);
}

/* Takes over the descriptor. */
static int fill_copy(const char *from, const char *to, int descriptor) {
  int code = 0;
  if (descriptor < 0) return ft_fail(FT_E_CACHE, "cannot make '%s': %s", to, strerror(errno));
  int status = ft_file_copy(from, descriptor, &code);
  if (status == FT_OK && fsync(descriptor) != 0)
    status = ft_fail(FT_E_CACHE, "cannot write '%s': %s", to, strerror(errno));
  if (close(descriptor) != 0 && status == FT_OK)
    status = ft_fail(FT_E_CACHE, "cannot write '%s': %s", to, strerror(errno));
  return status;
}

/* A journal was played back when the file was locked; what is there now is of that lock. */
static int copy_log(const char *from, const char *to) {
  char *source = NULL, *target = NULL;
  int status = with_ending(from, companions[0], &source);
  if (status == FT_OK) status = with_ending(to, companions[0], &target);
  if (status == FT_OK && access(source, F_OK) == 0)
    status = fill_copy(source, target,
                       open(target, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  free(source);
  free(target);
  return status;
}

/* "kernels.db.damaged", or the first of ".damaged.2", ".damaged.3" ... that is not there. */
static int keep(struct mending *mending) {
  int descriptor = -1;
  for (int number = 1; descriptor < 0; number++) {
    char ending[32] = ".damaged";
    if (number > 1) snprintf(ending, sizeof ending, ".damaged.%d", number);
    free(mending->kept);
    FT_TRY(with_ending(mending->path, ending, &mending->kept));
    descriptor = open(mending->kept, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) { /* what lies under the name is not ours to remove */
    const int status = ft_fail(FT_E_CACHE, "cannot make '%s': %s", mending->kept, strerror(errno));
    free(mending->kept);
    mending->kept = NULL;
    return status;
  }
  FT_TRY(fill_copy(mending->path, mending->kept, descriptor));
  return copy_log(mending->path, mending->kept);
}

static int make_scratch(struct mending *mending) {
  FT_TRY(ft_unfinished_make(&mending->scratch, mending->path));
  FT_TRY(fill_copy(mending->kept, mending->scratch.path, mending->scratch.file));
  return copy_log(mending->kept, mending->scratch.path);
}

static int make_fresh(struct mending *mending) {
  FT_TRY(ft_unfinished_make(&mending->fresh, mending->path));
  close(mending->fresh.file);
  return ft_database_open(&mending->sound, mending->fresh.path, FT_DATABASE_FRESH_USER);
}

/* -- content -------------------------------------------------------------------------------- */

/* Every user file is made by the same SQL, so the first pages differ in their counters alone: that
 * of a new file makes a file readable whose own first page is spoilt. SQLite reads no table of a
 * file that ends before the first page of any: one that was cut is filled up with empty pages. */
static int lend_first_page(struct mending *mending) {
  unsigned char page[PAGE_BYTES];
  size_t length = 0;
  int code = 0;
  FT_TRY(ft_file_begin(mending->fresh.path, page, sizeof page, &length, &code));
  const int descriptor = open(mending->scratch.path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0)
    return ft_fail(FT_E_CACHE, "cannot write '%s': %s", mending->scratch.path, strerror(errno));
  const off_t bytes = lseek(descriptor, 0, SEEK_END);
  off_t pages = 0;
  for (int i = 0; i < 4; i++) pages = pages << 8 | page[SIZE_AT + i];
  if (bytes >= pages * PAGE_BYTES) pages = bytes / PAGE_BYTES;
  for (int i = 0; i < 4; i++) page[SIZE_AT + i] = (unsigned char)((uint32_t)pages >> (24 - 8 * i));
  const bool written = bytes >= 0 && pwrite(descriptor, page, length, 0) == (ssize_t)length &&
                       ftruncate(descriptor, pages * PAGE_BYTES) == 0;
  const int why = errno;
  close(descriptor);
  if (written) return FT_OK;
  return ft_fail(FT_E_CACHE, "cannot write '%s': %s", mending->scratch.path, strerror(why));
}

/* *whole: there is no more to be had. */
static int read_remains(struct mending *mending, bool *whole) {
  *whole = false;
  int status = ft_database_open(&mending->remains, mending->scratch.path, FT_DATABASE_REMAINS);
  if (status == FT_OK)
    status = ft_store_salvage(&mending->remains, &mending->sound, PATIENCE, &mending->saved, whole);
  ft_database_close(&mending->remains);
  return status;
}

static int save_rows(struct mending *mending) {
  bool whole = false;
  FT_TRY(make_scratch(mending));
  FT_TRY(make_fresh(mending));
  FT_TRY(read_remains(mending, &whole));
  if (whole) return FT_OK;
  FT_TRY(lend_first_page(mending));
  return read_remains(mending, &whole);
}

/* Beside a write-ahead log a file can be overwritten by pages of its own size alone, and a spoilt
 * header may claim any. */
static int adopt_page_size(struct mending *mending) {
  char sql[64];
  int64_t bytes = 0;
  FT_TRY(ft_database_number(&mending->damaged, "PRAGMA page_size", &bytes));
  if (bytes == PAGE_BYTES) return FT_OK;
  snprintf(sql, sizeof sql, "PRAGMA page_size=%d; VACUUM", (int)bytes);
  if (sqlite3_exec(mending->sound.handle, sql, NULL, NULL, NULL) == SQLITE_OK) return FT_OK;
  return ft_database_fail(&mending->sound, "cannot be written");
}

/* Between the end of the lock and the overwriting another process has a moment to write to the
 * damaged file: what it writes then is in none of the copies. */
static int mend(struct mending *mending) {
  FT_TRY(ft_database_open(&mending->damaged, mending->path, FT_DATABASE_OVERWRITE));
  FT_TRY(ft_database_begin(&mending->damaged, PATIENCE_MS));
  int status = keep(mending);
  if (status == FT_OK) status = save_rows(mending);
  if (status == FT_OK) status = adopt_page_size(mending);
  ft_database_rollback(&mending->damaged);
  if (status == FT_OK)
    status = ft_database_overwrite(&mending->damaged, &mending->sound, PATIENCE_MS);
  return status;
}

int ft_store_mend(const char *path, int64_t *saved, char **kept) {
  struct mending mending = {
      .path = path, .scratch = FT_UNFINISHED_INIT, .fresh = FT_UNFINISHED_INIT};
  const int status = mend(&mending);
  ft_database_close(&mending.damaged);
  ft_database_close(&mending.sound);
  remove_unfinished(&mending.scratch);
  remove_unfinished(&mending.fresh);
  *saved = status == FT_OK ? mending.saved : 0;
  *kept = status == FT_OK ? mending.kept : NULL;
  if (status != FT_OK && mending.kept) {
    unlink(mending.kept);
    remove_companions(mending.kept);
    free(mending.kept);
  }
  return status == FT_OK ? FT_OK : ft_fail_within(status, "'%s' is damaged and was left so", path);
}
