/* claims.c: of all processes that need a kernel, one at a time makes it.
 * in -> out: store + key -> a locked byte of kernels.claims. */
#include "cache/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/folders.h"
#include "cache/store_parts.h"
#include "generator/status.h"

static int open_file(const char *folder) {
  char *real = NULL, *path = NULL;
  int file = -1;
  if (ft_folder_make(folder) == FT_OK && ft_folder_check(folder, &real) == FT_OK &&
      asprintf(&path, "%s/kernels.claims", real) >= 0) {
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    free(path);
  }
  free(real);
  return file;
}

void ft_claim_open(struct ft_claim *claim, const struct ft_store *store,
                   const struct ft_digest *key) {
  const char *const folder = store->user[FT_KIND_KERNELS].folder;
  uint64_t place;
  memcpy(&place, key->bytes, sizeof place);
  claim->place = (int64_t)(place >> 2); /* locks reach up to INT64_MAX */
  claim->file = store->memory_only || store->read_only || !folder ? -1 : open_file(folder);
}

static int lock(const struct ft_claim *claim, short type) {
  struct flock byte = {.l_type = type, .l_whence = SEEK_SET, .l_start = claim->place, .l_len = 1};
  return fcntl(claim->file, F_OFD_SETLK, &byte);
}

bool ft_claim_try(struct ft_claim *claim) {
  if (claim->file < 0 || lock(claim, F_WRLCK) == 0) return true;
  if (errno == EAGAIN) return false;
  close(claim->file); /* no locks here */
  claim->file = -1;
  return true;
}

/* Unlocked before it is closed: a child that the host has forked may hold the file open. */
void ft_claim_close(struct ft_claim *claim) {
  if (claim->file < 0) return;
  (void)lock(claim, F_UNLCK);
  close(claim->file);
  claim->file = -1;
}
