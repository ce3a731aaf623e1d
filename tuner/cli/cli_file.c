/* cli_file.c: the files of a command, in and out.
 * in -> out: bytes <-> a whole file; "-" is stdout or stdin. */
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
static int replace_file(const char *option, const char *path, const void *bytes, size_t length) {
  struct ft_unfinished unfinished;
  const int made = ft_unfinished_make(&unfinished, path);
  if (made != FT_OK) return ft_fail(FT_E_IO, "%s: %s", option, ft_detail());
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
  return error == 0 ? FT_OK : ft_fail(FT_E_IO, "%s '%s': %s", option, path, strerror(error));
}

int cli_file_check(const struct cli *cli, const char *option, const char *path) {
  if (!cli->options.json || strcmp(path, "-") != 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "%s is '-' with --json; allowed: a file", option);
}

int cli_file_write(struct cli *cli, const char *option, const char *path, const void *bytes,
                   size_t length) {
  struct stat state;
  FT_TRY(cli_file_check(cli, option, path));
  if (strcmp(path, "-") == 0) {
    (void)fwrite(bytes, 1, length, stdout); /* main looks at ferror(stdout) */
    return FT_OK;
  }
  /* Devices and pipes are opened and written, not replaced. So are links: /dev/stdout is one. */
  if (lstat(path, &state) == 0 && !S_ISREG(state.st_mode)) {
    FILE *const file = fopen(path, "wbe");
    int error = file == NULL ? errno : write_all(file, bytes, length);
    if (file != NULL && fclose(file) != 0 && error == 0) error = errno;
    return error == 0 ? FT_OK : ft_fail(FT_E_IO, "%s '%s': %s", option, path, strerror(error));
  }
  return replace_file(option, path, bytes, length);
}

/* ---- reading ---- */

/* What is left of a regular file; 0: not known. */
static size_t left_of(FILE *file) {
  struct stat state;
  if (fstat(fileno(file), &state) != 0 || !S_ISREG(state.st_mode)) return 0;
  const off_t at = ftello(file);
  return at >= 0 && state.st_size > at ? (size_t)(state.st_size - at) : 0;
}

static int read_all(FILE *file, const char *option, const char *path, size_t length, void *bytes) {
  errno = 0;
  const size_t got = fread(bytes, 1, length, file);
  const bool more = got == length && getc(file) != EOF;
  if (ferror(file)) return ft_fail(FT_E_IO, "%s '%s': %s", option, path, strerror(errno));
  if (got == length && !more) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "%s '%s' has %s%zu bytes; allowed: %zu", option, path,
                 more ? "more than " : "", got, length);
}

int cli_file_read(const char *option, const char *path, size_t length, void **bytes) {
  const bool is_stdin = strcmp(path, "-") == 0;
  FILE *const file = is_stdin ? stdin : fopen(path, "re");
  int status = FT_OK;
  *bytes = NULL;
  if (file == NULL) return ft_fail(FT_E_IO, "%s '%s': %s", option, path, strerror(errno));
  const size_t left = left_of(file); /* before so many bytes are asked for */
  if (left > 0 && left != length)
    status =
        ft_fail(FT_E_ARGUMENT, "%s '%s' has %zu bytes; allowed: %zu", option, path, left, length);
  if (status == FT_OK && (*bytes = malloc(length)) == NULL)
    status = ft_fail(FT_E_MEMORY, "%s: no memory for %zu bytes", option, length);
  if (status == FT_OK) status = read_all(file, option, path, length, *bytes);
  if (!is_stdin) fclose(file);
  return status;
}
