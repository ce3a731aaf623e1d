/* place.c: who could change what lies at a path.
 * in -> out: path -> each folder, link and file on the way, judged by owner and mode. */
#include "cache/place.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"

enum { LINKS_MOST = 40 };

struct walk {
  const char *asked; /* for messages */
  char done[PATH_MAX], rest[PATH_MAX];
  int links;
};

static int too_long(const struct walk *walk) {
  return ft_fail(FT_E_CACHE, "'%s': its name is too long", walk->asked);
}

/* Modes of a link mean nothing; who may put another in its place the folder says. */
static int judge(const char *path, const struct stat *state) {
  if (state->st_uid != 0 && state->st_uid != geteuid())
    return ft_fail(FT_E_CACHE,
                   "'%s' belongs to user %lu, neither to root nor to user %lu who runs this", path,
                   (unsigned long)state->st_uid, (unsigned long)geteuid());
  const bool shared = S_ISDIR(state->st_mode) && (state->st_mode & S_ISVTX) != 0;
  if (S_ISLNK(state->st_mode) || shared || (state->st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return FT_OK;
  return ft_fail(FT_E_CACHE, "'%s' can be written to by others (mode %03o)", path,
                 (unsigned)(state->st_mode & 0777));
}

/* Takes the first name off the rest; false at the end. */
static bool next_name(struct walk *walk, char name[NAME_MAX + 1]) {
  const char *begin = walk->rest;
  while (*begin == '/') begin++;
  const size_t length = strcspn(begin, "/");
  if (length == 0 || length > NAME_MAX) return false;
  memcpy(name, begin, length);
  name[length] = '\0';
  memmove(walk->rest, begin + length, strlen(begin + length) + 1);
  return true;
}

/* What the link points to goes before the rest. */
static int follow(struct walk *walk, const char *link) {
  char target[PATH_MAX];
  const ssize_t length = readlink(link, target, sizeof target - 1);
  if (length < 0) return ft_fail(FT_E_CACHE, "'%s': %s", link, strerror(errno));
  if (++walk->links > LINKS_MOST)
    return ft_fail(FT_E_CACHE, "'%s': too many symbolic links", walk->asked);
  target[length] = '\0';
  if ((size_t)length + 1 + strlen(walk->rest) >= sizeof target) return too_long(walk);
  stpcpy(stpcpy(target + length, "/"), walk->rest);
  strcpy(walk->rest, target);
  if (target[0] == '/') walk->done[0] = '\0';
  return FT_OK;
}

static int step(struct walk *walk, const char *name) {
  struct stat state;
  char *const slash = strrchr(walk->done, '/');
  const size_t length = strlen(walk->done);
  if (strcmp(name, ".") == 0) return FT_OK;
  if (strcmp(name, "..") == 0) {
    if (slash) *slash = '\0';
    return FT_OK;
  }
  if (length + strlen(name) + 2 > sizeof walk->done) return too_long(walk);
  stpcpy(stpcpy(walk->done + length, "/"), name);
  if (lstat(walk->done, &state) != 0)
    return ft_fail(errno == ENOENT ? FT_E_NOT_FOUND : FT_E_CACHE, "'%s': %s", walk->done,
                   strerror(errno));
  FT_TRY(judge(walk->done, &state));
  if (!S_ISLNK(state.st_mode)) return FT_OK;
  char link[PATH_MAX];
  strcpy(link, walk->done);
  walk->done[length] = '\0';
  return follow(walk, link);
}

static int begin(struct walk *walk, const char *path) {
  struct stat root;
  walk->done[0] = '\0';
  walk->rest[0] = '\0';
  if (path[0] != '/' && !getcwd(walk->rest, sizeof walk->rest - 1))
    return ft_fail(FT_E_CACHE, "'%s': %s", path, strerror(errno));
  const size_t length = strlen(walk->rest);
  if (length + strlen(path) + 2 > sizeof walk->rest) return too_long(walk);
  stpcpy(stpcpy(walk->rest + length, "/"), path);
  if (stat("/", &root) != 0) return ft_fail(FT_E_CACHE, "'/': %s", strerror(errno));
  return judge("/", &root);
}

int ft_place_check(const char *path, char **real) {
  struct walk walk = {.asked = path};
  char name[NAME_MAX + 1];
  *real = NULL;
  FT_TRY(begin(&walk, path));
  while (next_name(&walk, name)) FT_TRY(step(&walk, name));
  if (walk.rest[strspn(walk.rest, "/")]) return too_long(&walk);
  *real = strdup(walk.done[0] ? walk.done : "/");
  return *real ? FT_OK : ft_fail(FT_E_MEMORY, "no memory for a path");
}
