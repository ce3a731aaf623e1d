/* cli_file.c: writing a command's output file.
 * in -> out: bytes -> a whole file or none; "-" is stdout. */
#include "tuner/cli/cli_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/unfinished.h"
#include "generator/status.h"

static int write_all(FILE *file, const void *bytes, size_t length) {
  const bool written = length == 0 || fwrite(bytes, 1, length, file) == length;
  return written && fflush(file) == 0 ? 0 : errno;
}

/* A temporary beside the file, then rename: a reader sees the old file or the new one. */
static int replace_file(const char *path, const void *bytes, size_t length) {
  struct ft_unfinished unfinished;
  const int made = ft_unfinished_make(&unfinished, path);
  if (made != FT_OK) return ft_fail(FT_E_IO, "--output: %s", ft_detail());
  FILE *const file = fdopen(unfinished.file, "wb");
  int error = file == NULL ? errno : write_all(file, bytes, length);
  const mode_t mask = umask(0); /* mkstemp makes 0600; a result is as readable as any other file */
  umask(mask);
  if (error == 0 && fchmod(unfinished.file, 0666 & ~mask) != 0) error = errno;
  if (file == NULL)
    close(unfinished.file);
  else if (fclose(file) != 0 && error == 0)
    error = errno;
  if (error == 0 && rename(unfinished.path, path) != 0) error = errno;
  ft_unfinished_end(&unfinished);
  return error == 0 ? FT_OK : ft_fail(FT_E_IO, "--output '%s': %s", path, strerror(error));
}

int cli_file_write(struct cli *cli, const char *path, const void *bytes, size_t length) {
  struct stat state;
  if (strcmp(path, "-") == 0) {
    if (cli->options.json)
      return ft_fail(FT_E_ARGUMENT, "--output is '-' with --json; allowed: a file");
    (void)fwrite(bytes, 1, length, stdout); /* main looks at ferror(stdout) */
    return FT_OK;
  }
  /* Devices and pipes are opened and written, not replaced. So are links: /dev/stdout is one. */
  if (lstat(path, &state) == 0 && !S_ISREG(state.st_mode)) {
    FILE *const file = fopen(path, "wbe");
    int error = file == NULL ? errno : write_all(file, bytes, length);
    if (file != NULL && fclose(file) != 0 && error == 0) error = errno;
    return error == 0 ? FT_OK : ft_fail(FT_E_IO, "--output '%s': %s", path, strerror(error));
  }
  return replace_file(path, bytes, length);
}
