/* folders.c: where the files of the stores lie, and whether that place can be trusted.
 * in -> out: environment -> folder names; a folder -> made, checked, known to be local. */
#include "cache/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "generator/status.h"
#include "generator/text.h"

/* XDG: relative names are invalid and to be ignored. secure_getenv: a set-uid program must not be
 * told where to take GPU code from. */
static const char *absolute_of(const char *variable) {
  const char *const value = secure_getenv(variable);
  return value && value[0] == '/' ? value : NULL;
}

static int join(char **name, const char *a, const char *b) {
  if (asprintf(name, "%s%s", a, b) < 0) {
    *name = NULL;
    return ft_fail(FT_E_MEMORY, "no memory for the name of a folder");
  }
  return FT_OK;
}

int ft_folder_name(enum ft_folder folder, const char *given, char **name) {
  const bool tuning = folder == FT_FOLDER_TUNING;
  if (!given || !given[0]) given = secure_getenv("FATUNE_CACHE_DIR");
  if (given && given[0]) return join(name, given, "");

  const char *const base = absolute_of(tuning ? "XDG_STATE_HOME" : "XDG_CACHE_HOME");
  if (base) return join(name, base, "/fatune");
  const char *const home = absolute_of("HOME");
  if (home) return join(name, home, tuning ? "/.local/state/fatune" : "/.cache/fatune");
  *name = NULL;
  return ft_fail(FT_E_NOT_FOUND,
                 "no folder for the caches: neither FATUNE_CACHE_DIR nor %s nor "
                 "HOME is set to an absolute path",
                 tuning ? "XDG_STATE_HOME" : "XDG_CACHE_HOME");
}

static int make_one(const char *name) {
  if (mkdir(name, 0700) == 0 || errno == EEXIST) return FT_OK;
  /* A read-only parent answers EROFS or EACCES even when the folder is there. */
  const int why = errno;
  struct stat state;
  if (stat(name, &state) == 0) return FT_OK;
  return ft_fail(FT_E_CACHE, "cannot make the folder '%s': %s", name, strerror(why));
}

int ft_folder_make(const char *name) {
  char *const path = strdup(name);
  if (!path) return ft_fail(FT_E_MEMORY, "no memory for the name of a folder");
  int status = FT_OK;
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    FT_CHECK(make_one(path));
    *slash = '/';
  }
  FT_CHECK(make_one(path));
done:
  free(path);
  return status;
}

/* Owner and mode as asked for of both folders and files. */
static int check_owner(const char *name, const struct stat *state) {
  if (state->st_uid != geteuid())
    return ft_fail(FT_E_CACHE, "'%s' belongs to user %lu, not to user %lu who runs this; not used",
                   name, (unsigned long)state->st_uid, (unsigned long)geteuid());
  if (state->st_mode & (S_IWGRP | S_IWOTH))
    return ft_fail(FT_E_CACHE,
                   "'%s' can be written to by others (mode %03o); not used; "
                   "'chmod go-w' makes it usable",
                   name, (unsigned)(state->st_mode & 0777));
  return FT_OK;
}

int ft_folder_check(const char *name, char **real) {
  struct stat state;
  *real = NULL;
  if (stat(name, &state) != 0)
    return ft_fail(errno == ENOENT ? FT_E_NOT_FOUND : FT_E_IO, "cannot use the folder '%s': %s",
                   name, strerror(errno));
  if (!S_ISDIR(state.st_mode))
    return ft_fail(FT_E_CACHE, "cannot use the folder '%s': it is not a folder", name);
  FT_TRY(check_owner(name, &state));
  *real = realpath(name, NULL);
  if (!*real) return ft_fail(FT_E_IO, "cannot use the folder '%s': %s", name, strerror(errno));
  return FT_OK;
}

int ft_file_check(const char *path) {
  struct stat state;
  if (lstat(path, &state) != 0)
    return ft_fail(errno == ENOENT ? FT_E_NOT_FOUND : FT_E_IO, "cannot use '%s': %s", path,
                   strerror(errno));
  if (!S_ISREG(state.st_mode))
    return ft_fail(FT_E_CACHE, "cannot use '%s': it is %s, not a plain file", path,
                   S_ISLNK(state.st_mode)   ? "a symbolic link"
                   : S_ISDIR(state.st_mode) ? "a folder"
                                            : "a device, pipe or socket");
  return check_owner(path, &state);
}

bool ft_folder_is_local(const char *name) {
  /* f_type of statfs(2); <linux/magic.h> lacks some of them. */
  static const unsigned long local[] = {
      0xEF53,     /* ext2, ext3, ext4 */
      0x58465342, /* xfs */
      0x9123683E, /* btrfs */
      0x2FC12FC1, /* zfs */
      0xF2F52010, /* f2fs */
      0xCA451A4E, /* bcachefs */
      0x3153464A, /* jfs */
      0x01021994, /* tmpfs */
      0x858458F6, /* ramfs */
      0x794C7630, /* overlayfs, as in containers */
  };
  struct statfs state;
  if (statfs(name, &state) != 0) return false;
  for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
    if (((unsigned long)state.f_type & 0xFFFFFFFFUL) == local[i]) return true;
  return false;
}
