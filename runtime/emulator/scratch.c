/* scratch.c: a folder to compile in, for one compile.
 * in -> out: TMPDIR -> a folder of this process; those of processes that are no more are removed.
 *
 * A process that a signal ends cannot remove its folder. The lock on it ends with the process, and
 * whoever makes the next one removes every folder of the same user that nobody has locked. */
#include "runtime/emulator/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"

enum { OPEN_FOLDERS = 4, ATTEMPTS = 8 };
static const char PREFIX[] = "fatune-kernel-";

static int remove_one(const char *path, const struct stat *file, int type, struct FTW *place) {
  (void)file;
  (void)type;
  (void)place;
  (void)remove(path);
  return 0;
}

/* The folder, open and locked; -1: somebody else has the lock, or it is not ours or not there. */
static int lock_folder(const char *path) {
  struct stat state;
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  if (fstat(folder, &state) == 0 && state.st_uid == geteuid() && state.st_nlink > 0 &&
      flock(folder, LOCK_EX | LOCK_NB) == 0 && fstat(folder, &state) == 0 && state.st_nlink > 0)
    return folder;
  close(folder);
  return -1;
}

static void sweep(const char *parent) {
  DIR *const folder = opendir(parent);
  if (!folder) return;
  for (const struct dirent *entry; (entry = readdir(folder));) {
    char path[PATH_MAX];
    if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0) continue;
    const int length = snprintf(path, sizeof path, "%s/%s", parent, entry->d_name);
    const int lock = length > 0 && length < PATH_MAX ? lock_folder(path) : -1;
    if (lock < 0) continue;
    (void)nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    close(lock);
  }
  closedir(folder);
}

/* Where the file system has no locks the folder is used without, and nobody sweeps there. Between
 * its making and its locking another process may take it for one that was left. */
static bool make_locked(struct ft_scratch *scratch) {
  if (!mkdtemp(scratch->path)) return false;
  scratch->lock = lock_folder(scratch->path);
  return scratch->lock >= 0 || (access(scratch->path, W_OK) == 0 && errno != EWOULDBLOCK);
}

int ft_scratch_make(struct ft_scratch *scratch) {
  const char *parent = secure_getenv("TMPDIR");
  if (!parent || !*parent) parent = "/tmp";
  scratch->lock = -1;
  errno = ENAMETOOLONG;
  sweep(parent);
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    const int length = snprintf(scratch->path, sizeof scratch->path, "%s/%sXXXXXX", parent, PREFIX);
    if (length <= 0 || length >= (int)sizeof scratch->path) break;
    if (make_locked(scratch)) return FT_OK;
  }
  const int error = errno;
  scratch->path[0] = '\0';
  return ft_fail(FT_E_IO, "no folder can be made in %s: %s (TMPDIR names another place)", parent,
                 strerror(error));
}

void ft_scratch_remove(struct ft_scratch *scratch) {
  if (scratch->path[0]) (void)nftw(scratch->path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
  if (scratch->lock >= 0) close(scratch->lock);
  scratch->lock = -1;
}
