/* nvrtc_known.c: the NVRTC that last compiled here, remembered.
 * in -> out: the file `nvrtc` beside kernels.db, one line "VERSION SIZE INODE SECONDS NANOSECONDS
 * PATH" <-> version, and whether the library is still that one. */
#include "runtime/nvrtc_known.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/folders.h"
#include "generator/status.h"

enum { LINE_MOST = PATH_MAX + 256 };

/* What tells one library file from the one that replaces it. */
struct stamp {
  long long size, inode, seconds, nanoseconds;
};

static bool read_stamp(const char *path, struct stamp *stamp) {
  struct stat state;
  if (stat(path, &state) != 0 || !S_ISREG(state.st_mode)) return false;
  *stamp = (struct stamp){(long long)state.st_size, (long long)state.st_ino,
                          (long long)state.st_mtim.tv_sec, (long long)state.st_mtim.tv_nsec};
  return true;
}

static bool same_stamp(const struct stamp *a, const struct stamp *b) {
  return a->size == b->size && a->inode == b->inode && a->seconds == b->seconds &&
         a->nanoseconds == b->nanoseconds;
}

/* False: there is no such folder, or it is not ours alone. */
static bool name_file(const char *kernels, char path[PATH_MAX]) {
  char folder[PATH_MAX], *real = NULL;
  const char *const slash = kernels ? strrchr(kernels, '/') : NULL;
  const size_t length = slash ? (size_t)(slash - kernels) : 0;
  if (length == 0 || length >= sizeof folder) return false;
  memcpy(folder, kernels, length);
  folder[length] = '\0';
  if (ft_folder_check(folder, &real) != FT_OK) return false;
  const int wrote = snprintf(path, PATH_MAX, "%s/nvrtc", real);
  free(real);
  return wrote > 0 && wrote < PATH_MAX;
}

/* The one whole line of the file, without its end. */
static bool read_line(const char *path, char line[LINE_MOST]) {
  if (ft_file_check(path) != FT_OK) return false;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const ssize_t length = read(file, line, LINE_MOST - 1);
  close(file);
  if (length < 1 || line[length - 1] != '\n' || memchr(line, '\0', (size_t)length)) return false;
  line[length - 1] = '\0';
  return true;
}

/* FATUNE_LIBNVRTC names the very library: another one is not what will be opened. */
static bool is_chosen(const char *path) {
  const char *const chosen = secure_getenv("FATUNE_LIBNVRTC");
  if (!chosen || !*chosen) return true;
  char *const real = realpath(chosen, NULL);
  const bool same = real && strcmp(real, path) == 0;
  free(real);
  return same;
}

/* Reads the four numbers of a line. Returns what follows them and their blanks. */
static const char *parse_stamp(const char *text, struct stamp *stamp) {
  long long *const numbers[] = {&stamp->size, &stamp->inode, &stamp->seconds, &stamp->nanoseconds};
  for (int n = 0; n < 4; n++) {
    char *rest;
    *numbers[n] = strtoll(text, &rest, 10);
    if (rest == text) return "";
    text = rest;
  }
  return text + strspn(text, " ");
}

struct ft_nvrtc_known ft_nvrtc_recall(const char *kernels) {
  struct ft_nvrtc_known known = {.version = ""};
  struct stamp then, now;
  char file[PATH_MAX], line[LINE_MOST];
  if (!name_file(kernels, file) || !read_line(file, line)) return known;
  const size_t version = strcspn(line, " ");
  const char *const path = parse_stamp(line + version, &then);
  if (version == 0 || version >= sizeof known.version || path[0] != '/') return known;
  memcpy(known.version, line, version);
  known.present = is_chosen(path) && read_stamp(path, &now) && same_stamp(&then, &now);
  return known;
}

void ft_nvrtc_remember(const char *kernels, const struct ft_compiler *compiler) {
  const char *const path = ft_compiler_path(compiler);
  struct stamp stamp;
  char file[PATH_MAX], line[LINE_MOST], before[LINE_MOST];
  if (path[0] != '/' || strchr(path, '\n') || !name_file(kernels, file) ||
      !read_stamp(path, &stamp))
    return;
  const int length =
      snprintf(line, sizeof line, "%s %lld %lld %lld %lld %s\n", ft_compiler_version(compiler),
               stamp.size, stamp.inode, stamp.seconds, stamp.nanoseconds, path);
  if (length < 1 || length >= (int)sizeof line) return;
  const bool there = read_line(file, before);
  if (there && strlen(before) == (size_t)length - 1 && memcmp(before, line, strlen(before)) == 0)
    return;
  /* Written at one go. Whoever reads in between finds no whole line, which is as good as no file.
   */
  const int out =
      open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (out < 0) return;
  if (write(out, line, (size_t)length) != length) unlink(file);
  close(out);
}
