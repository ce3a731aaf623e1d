/* store_state.c: a number that changes when trials may have been added to the store.
 * in -> out: trials taken in, tuning.db as it lies on the disk -> a number. */
#include <stdio.h>
#include <sys/stat.h>

#include "cache/store_parts.h"

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 32;
}

/* An empty log is as good as none: opening the database makes one. */
static uint64_t mix_file(uint64_t hash, const char *path) {
  struct stat found;
  if (stat(path, &found) != 0 || found.st_size == 0) return mix(hash, 0);
  hash = mix(hash, (uint64_t)found.st_ino);
  hash = mix(hash, (uint64_t)found.st_size);
  hash = mix(hash, (uint64_t)found.st_mtim.tv_sec);
  return mix(hash, (uint64_t)found.st_mtim.tv_nsec);
}

unsigned ft_store_taken_in(struct ft_store *store) {
  return atomic_load(&store->taken_in);
}

uint64_t ft_store_state(struct ft_store *store) {
  const char *const path = ft_store_tuning_path(store);
  char log[4096];
  uint64_t hash = 0;
  if (path && snprintf(log, sizeof log, "%s-wal", path) < (int)sizeof log)
    hash = mix_file(mix_file(hash, path), log);
  return (uint64_t)ft_store_taken_in(store) << 32 | (hash & UINT32_MAX);
}
