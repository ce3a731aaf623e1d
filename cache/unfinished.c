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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "generator/status.h"

#define ENDING ".unfinished-"

enum { RANDOM = 6, SECONDS_LEFT_ALONE = 600 };

/* "BASE.unfinished-XXXXXX", and with a journal's ending behind it. */
static bool is_unfinished(const char *name, const char *base) {
  const size_t length = strlen(base), ending = sizeof ENDING - 1;
  if (strncmp(name, base, length) != 0 || strncmp(name + length, ENDING, ending) != 0) return false;
  const char *const rest = name + length + ending;
  if (strlen(rest) < RANDOM || memchr(rest, '-', RANDOM)) return false;
  return rest[RANDOM] == '\0' || rest[RANDOM] == '-';
}

static void sweep(DIR *folder, const char *base) {
  const struct dirent *entry;
  struct stat state;
  const time_t now = time(NULL);
  while ((entry = readdir(folder)) != NULL)
    if (is_unfinished(entry->d_name, base) &&
        fstatat(dirfd(folder), entry->d_name, &state, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(state.st_mode) && state.st_uid == geteuid() &&
        now - state.st_mtime > SECONDS_LEFT_ALONE)
      unlinkat(dirfd(folder), entry->d_name, 0);
}

/* What cannot be swept does no harm. */
static void sweep_beside(const char *file) {
  const char *const slash = strrchr(file, '/');
  char *const name = strdup(file);
  if (!name) return;
  name[slash ? slash - file + (slash == file) : 0] = '\0';
  DIR *const folder = opendir(name[0] ? name : ".");
  if (folder) sweep(folder, slash ? slash + 1 : file);
  if (folder) closedir(folder);
  free(name);
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

int ft_unfinished_make(const char *file, char **temporary, int *descriptor) {
  *descriptor = -1;
  *temporary = NULL;
  FT_TRY(check_place(file));
  sweep_beside(file);
  if (asprintf(temporary, "%s" ENDING "XXXXXX", file) < 0) {
    *temporary = NULL;
    return ft_fail(FT_E_MEMORY, "no memory for a path");
  }
  *descriptor = mkstemp(*temporary);
  if (*descriptor >= 0) return FT_OK;
  const int status = ft_fail(FT_E_CACHE, "cannot write '%s': %s", file, strerror(errno));
  free(*temporary);
  *temporary = NULL;
  return status;
}
