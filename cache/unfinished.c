/* unfinished.c: files that are being made, under names of their own until they are whole.
 * in -> out: the name a file is to have -> a new empty file beside it; what others left is swept.
 */
#include "cache/unfinished.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "generator/status.h"

#define ENDING ".unfinished-"

enum { RANDOM = 6, SECONDS_LEFT_ALONE = 600, LOCK_ATTEMPTS = 100, ATTEMPT_US = 1000 };

/* "BASE.unfinished-XXXXXX", and with a journal's ending behind it. */
static bool is_unfinished(const char *name, const char *base) {
  const size_t length = strlen(base), ending = sizeof ENDING - 1;
  if (strncmp(name, base, length) != 0 || strncmp(name + length, ENDING, ending) != 0) return false;
  const char *const rest = name + length + ending;
  if (strlen(rest) < RANDOM || memchr(rest, '-', RANDOM)) return false;
  return rest[RANDOM] == '\0' || rest[RANDOM] == '-';
}

/* alone: nobody else makes a file here. */
static void sweep(DIR *folder, const char *base, bool alone) {
  const struct dirent *entry;
  struct stat state;
  const time_t now = time(NULL);
  while ((entry = readdir(folder)) != NULL)
    if (is_unfinished(entry->d_name, base) &&
        fstatat(dirfd(folder), entry->d_name, &state, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(state.st_mode) && state.st_uid == geteuid() &&
        (alone || now - state.st_mtime > SECONDS_LEFT_ALONE))
      unlinkat(dirfd(folder), entry->d_name, 0);
}

/* The folder of a file, locked: by one who sweeps alone, by those who make files together. What
 * cannot be swept does no harm, and where there are no locks time alone tells what was left. */
static int sweep_beside(const char *file) {
  const char *const slash = strrchr(file, '/');
  char *const name = strdup(file);
  if (!name) return -1;
  name[slash ? slash - file + (slash == file) : 0] = '\0';
  const char *const path = name[0] ? name : ".";
  const int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *const folder = opendir(path);
  if (folder) sweep(folder, slash ? slash + 1 : file, flock(lock, LOCK_EX | LOCK_NB) == 0);
  if (folder) closedir(folder);
  free(name);
  return lock;
}

/* Another who sweeps has the lock for a moment. */
static void share(int folder) {
  for (int i = 0; flock(folder, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++) {
    if (i == LOCK_ATTEMPTS) return;
    usleep(ATTEMPT_US);
  }
}

/* Unlocked before it is closed: a child that the host has forked may hold the folder open. */
static void leave(int folder) {
  if (folder < 0) return;
  flock(folder, LOCK_UN);
  close(folder);
}

void ft_unfinished_sweep(const char *file) {
  leave(sweep_beside(file));
}

/* The new file takes the place of what has its name: nothing but a plain file may be lost so, and
 * no link, as /dev/stdout is one. */
static int check_place(const char *file) {
  struct stat state;
  if (lstat(file, &state) != 0)
    return errno == ENOENT ? FT_OK
                           : ft_fail(FT_E_CACHE, "cannot write '%s': %s", file, strerror(errno));
  if (S_ISREG(state.st_mode)) return FT_OK;
  return ft_fail(FT_E_CACHE, "cannot write '%s': it is %s; allowed: a plain file or a new name",
                 file,
                 S_ISDIR(state.st_mode)   ? "a folder"
                 : S_ISLNK(state.st_mode) ? "a link"
                                          : "a device, pipe or socket");
}

int ft_unfinished_make(struct ft_unfinished *unfinished, const char *file) {
  *unfinished = (struct ft_unfinished)FT_UNFINISHED_INIT;
  FT_TRY(check_place(file));
  unfinished->folder = sweep_beside(file);
  share(unfinished->folder);
  if (asprintf(&unfinished->path, "%s" ENDING "XXXXXX", file) < 0) {
    unfinished->path = NULL;
    ft_unfinished_end(unfinished);
    return ft_fail(FT_E_MEMORY, "no memory for a path");
  }
  unfinished->file = mkstemp(unfinished->path);
  if (unfinished->file >= 0) return FT_OK;
  const int status = ft_fail(FT_E_CACHE, "cannot write '%s': %s", file, strerror(errno));
  free(unfinished->path);
  unfinished->path = NULL;
  ft_unfinished_end(unfinished);
  return status;
}

void ft_unfinished_end(struct ft_unfinished *unfinished) {
  if (unfinished->path) unlink(unfinished->path);
  leave(unfinished->folder);
  free(unfinished->path);
  *unfinished = (struct ft_unfinished)FT_UNFINISHED_INIT;
}
