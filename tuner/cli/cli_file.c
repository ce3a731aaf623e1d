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

/* error: as errno; 0 is none. */
static int fail_of(const struct cli_result *result, int error) {
  if (error == 0) return FT_OK;
  return ft_fail(FT_E_IO, "%s '%s': %s", result->option, result->path, strerror(error));
}

static int write_all(FILE *file, const void *bytes, size_t length) {
  const bool written = length == 0 || fwrite(bytes, 1, length, file) == length;
  return written && fflush(file) == 0 ? 0 : errno;
}

/* A temporary beside the file, which replaces it when it is renamed: a reader sees the old file or
 * the new one. */
static int write_beside(struct ft_unfinished *unfinished, const struct cli_result *result) {
  if (ft_unfinished_make(unfinished, result->path) != FT_OK)
    return ft_fail(FT_E_IO, "%s: %s", result->option, ft_detail());
  FILE *const file = fdopen(unfinished->file, "wb");
  int error = file == NULL ? errno : write_all(file, result->bytes, result->length);
  const mode_t mask = umask(0); /* mkstemp makes 0600; a result is as readable as any other file */
  umask(mask);
  if (error == 0 && fchmod(unfinished->file, 0666 & ~mask) != 0) error = errno;
  if (file == NULL)
    close(unfinished->file);
  else if (fclose(file) != 0 && error == 0)
    error = errno;
  return fail_of(result, error);
}

/* Devices and pipes are opened and written, not replaced. So are links: /dev/stdout is one. */
static bool is_replaced(const char *path) {
  struct stat state;
  return strcmp(path, "-") != 0 && (lstat(path, &state) != 0 || S_ISREG(state.st_mode));
}

static int write_into(const struct cli_result *result) {
  if (strcmp(result->path, "-") == 0) {
    (void)fwrite(result->bytes, 1, result->length, stdout); /* main looks at ferror(stdout) */
    return FT_OK;
  }
  FILE *const file = fopen(result->path, "wbe");
  int error = file == NULL ? errno : write_all(file, result->bytes, result->length);
  if (file != NULL && fclose(file) != 0 && error == 0) error = errno;
  return fail_of(result, error);
}

static bool is_same_place(const struct stat *one, const struct stat *other) {
  return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* The path's last name; where its folder is. */
static const char *name_of(const char *path, struct stat *folder) {
  const char *const slash = strrchr(path, '/');
  if (slash == NULL) return stat(".", folder) == 0 ? path : NULL;
  char *const before = strndup(path, (size_t)(slash - path) + 1);
  const bool is_there = before != NULL && stat(before, folder) == 0;
  free(before);
  return is_there ? slash + 1 : NULL;
}

/* errno of what will keep a file from being written there, as far as that can be told before. */
static int obstacle_at(const char *path) {
  struct stat state;
  if (!is_replaced(path)) {
    if (stat(path, &state) == 0 && S_ISDIR(state.st_mode)) return EISDIR;
    return access(path, W_OK) == 0 || errno == ENOENT ? 0 : errno; /* a link may make its file */
  }
  const char *const slash = strrchr(path, '/');
  char *const folder = slash != NULL ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  const int error = folder == NULL ? ENOMEM : access(folder, W_OK | X_OK) == 0 ? 0 : errno;
  free(folder);
  return error;
}

int cli_file_check(const struct cli *cli, const char *option, const char *path) {
  const bool is_stdout = strcmp(path, "-") == 0;
  const int error = is_stdout ? 0 : obstacle_at(path);
  if (error != 0)
    return ft_fail(FT_E_IO, "%s: cannot write '%s': %s", option, path, strerror(error));
  if (!is_stdout || !cli->options.json) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "%s is '-' with --json; allowed: a file", option);
}

bool cli_file_same(const char *one, const char *other) {
  struct stat first, second;
  if (strcmp(one, "-") == 0 || strcmp(other, "-") == 0) return false;
  const bool has_first = stat(one, &first) == 0, has_second = stat(other, &second) == 0;
  if (has_first != has_second) return false;
  if (has_first) return S_ISREG(first.st_mode) && is_same_place(&first, &second);
  const char *const name = name_of(one, &first);
  const char *const name_of_other = name_of(other, &second);
  return name != NULL && name_of_other != NULL && strcmp(name, name_of_other) == 0 &&
         is_same_place(&first, &second);
}

int cli_files_write(struct cli *cli, const struct cli_result results[], int count) {
  struct ft_unfinished unfinished[CLI_RESULTS_MOST] = {FT_UNFINISHED_INIT, FT_UNFINISHED_INIT};
  bool replaced[CLI_RESULTS_MOST] = {false};
  int status = FT_OK;
  for (int i = 0; i < count; i++) {
    FT_TRY(cli_file_check(cli, results[i].option, results[i].path));
    replaced[i] = is_replaced(results[i].path);
  }
  for (int i = 0; i < count && status == FT_OK; i++)
    if (replaced[i]) status = write_beside(&unfinished[i], &results[i]);
  for (int i = 0; i < count && status == FT_OK; i++)
    if (!replaced[i]) status = write_into(&results[i]);
  for (int i = 0; i < count && status == FT_OK; i++)
    if (replaced[i] && rename(unfinished[i].path, results[i].path) != 0)
      status = fail_of(&results[i], errno);
  for (int i = 0; i < count; i++)
    if (replaced[i]) ft_unfinished_end(&unfinished[i]);
  return status;
}

int cli_file_write(struct cli *cli, const char *option, const char *path, const void *bytes,
                   size_t length) {
  const struct cli_result result = {option, path, bytes, length};
  return cli_files_write(cli, &result, 1);
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
