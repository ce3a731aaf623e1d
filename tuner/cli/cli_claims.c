/* cli_claims.c: requests that several processes share out as each becomes free. in -> out: see
 * cli_claims.h.
 *
 * A process has a file of its own in the folder. To claim a request it links this file to the
 * request's name, which a file system does for one process alone, over NFS, too. */
#include "tuner/cli/cli_claims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"
#include "generator/text.h"

struct cli_claims {
  char *folder;
  struct ft_text own; /* path of the process's file */
  struct stat file;
  pid_t opener; /* a worker forked behind has the same file, and leaves it there */
};

static int failed(const struct cli_claims *claims) {
  return ft_fail(FT_E_IO, "--claims '%s': %s", claims->folder, strerror(errno));
}

static int make_own_file(struct cli_claims *claims) {
  if (mkdir(claims->folder, 0777) != 0 && errno != EEXIST) return failed(claims);
  ft_text_add(&claims->own, "%s/.process-XXXXXX", claims->folder);
  FT_TRY(ft_text_status(&claims->own));
  const int file = mkstemp(claims->own.data);
  if (file < 0 || fstat(file, &claims->file) != 0) {
    const int status = failed(claims);
    if (file >= 0) close(file);
    return status;
  }
  close(file);
  return FT_OK;
}

int cli_claims_open(struct cli_claims **claims, const char *folder) {
  struct cli_claims *const it = calloc(1, sizeof *it);
  *claims = it;
  if (it) it->folder = strdup(folder);
  if (!it || !it->folder) {
    free(it);
    *claims = NULL;
    return ft_fail(FT_E_MEMORY, "no memory for claims");
  }
  it->own = (struct ft_text)FT_TEXT_INIT;
  it->opener = getpid();
  const int status = make_own_file(it);
  if (status == FT_OK) return FT_OK;
  cli_claims_close(it);
  *claims = NULL;
  return status;
}

static bool is_ours(const struct cli_claims *claims, const char *path) {
  struct stat file;
  return stat(path, &file) == 0 && file.st_ino == claims->file.st_ino &&
         file.st_dev == claims->file.st_dev;
}

int cli_claims_take(const struct cli_claims *claims, const char *request, bool *ours) {
  struct ft_text path = FT_TEXT_INIT;
  *ours = false;
  ft_text_add(&path, "%s/%s", claims->folder, request);
  int status = ft_text_status(&path);
  if (status == FT_OK) {
    for (char *at = path.data + strlen(claims->folder) + 1; *at; at++)
      if (*at == ' ' || *at == '/') *at = '_';
    /* The answer of an NFS server may be lost: the file tells. */
    const bool linked = link(claims->own.data, path.data) == 0;
    const bool there = !linked && errno == EEXIST;
    *ours = linked || is_ours(claims, path.data);
    if (!*ours && !there) status = failed(claims);
  }
  ft_text_free(&path);
  return status;
}

void cli_claims_close(struct cli_claims *claims) {
  if (!claims) return;
  if (claims->file.st_ino != 0 && getpid() == claims->opener) unlink(claims->own.data);
  ft_text_free(&claims->own);
  free(claims->folder);
  free(claims);
}
