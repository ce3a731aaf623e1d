/* cli_score.c: the score function of a command line.
 * in -> out: --score -> struct ft_score, the number that requests have. */
#include "tuner/cli/cli_score.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/builtin.h"
#include "generator/status.h"
#include "runtime/session.h"

enum { MAX_FILE_BYTES = 1 << 20 };

static bool is_file(const char *given) {
  const size_t length = strlen(given);
  return strchr(given, '/') != NULL || (length > 4 && strcmp(given + length - 4, ".lua") == 0);
}

static const char *name_of(const char *path) {
  const char *const slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

/* *text is the caller's to free, on failure NULL. */
static int read_file(const char *path, char **text) {
  *text = NULL;
  FILE *const file = fopen(path, "rbe");
  if (file == NULL) return ft_fail(FT_E_IO, "--score '%s': %s", path, strerror(errno));
  int status = FT_OK;
  char *const bytes = malloc(MAX_FILE_BYTES + 2);
  if (bytes == NULL) {
    status = ft_fail(FT_E_MEMORY, "--score '%s': out of memory", path);
    goto done;
  }
  const size_t length = fread(bytes, 1, MAX_FILE_BYTES + 1, file);
  bytes[length] = '\0';
  if (ferror(file))
    status = ft_fail(FT_E_IO, "--score '%s': %s", path, strerror(errno));
  else if (length > MAX_FILE_BYTES)
    status = ft_fail(FT_E_IO, "--score '%s' is larger than %d bytes", path, MAX_FILE_BYTES);
  else if (strlen(bytes) != length)
    status = ft_fail(FT_E_ARGUMENT, "--score '%s' has a NUL byte in it; allowed: text", path);

done:
  fclose(file);
  if (status == FT_OK)
    *text = bytes;
  else
    free(bytes);
  return status;
}

/* An unknown name is a wrong value of an option. */
static int as_option(int status) {
  return status == FT_E_NOT_FOUND ? FT_E_ARGUMENT : status;
}

int cli_score_read(const char *given, const fatune_session *session, struct ft_score *score) {
  if (!is_file(given))
    return as_option(ft_score_read_builtin(score, ft_lua_files(session->lua), given));
  char *text;
  FT_TRY(read_file(given, &text));
  const int status = ft_score_read(score, name_of(given), text, strlen(text));
  free(text);
  return status;
}

int cli_score_add(const char *given, fatune_session *session, int64_t *number) {
  if (!is_file(given)) return as_option(fatune_score_add(number, session, given, NULL));
  char *text;
  FT_TRY(read_file(given, &text));
  const int status = fatune_score_add(number, session, name_of(given), text);
  free(text);
  return status;
}
