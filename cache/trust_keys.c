/* trust_keys.c: the public keys that are trusted here.
 * in -> out: two folders of *.pub files -> keys; what is not safe or no key -> passed over. */
#include "cache/trust_keys.h"

#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/file_bytes.h"
#include "cache/place.h"
#include "generator/status.h"

enum { KEYS_MOST = 256, KEY_FILE_MOST = 4096 };

static const char SYSTEM_FOLDER[] = "/etc/fatune/trusted";
static const char ENDING[] = ".pub";

struct keys {
  struct ft_public_key *at; /* room for KEYS_MOST */
  int count, refused;
  char *reason; /* of 256 bytes */
};

static int is_key(const struct dirent *entry) {
  const size_t length = strlen(entry->d_name), ending = sizeof ENDING - 1;
  return length > ending && strcmp(entry->d_name + length - ending, ENDING) == 0;
}

static int read_key(const char *path, struct ft_public_key *key) {
  char *real = NULL;
  void *text = NULL;
  size_t size;
  FT_TRY(ft_place_check(path, &real));
  int status = ft_file_bytes(real, KEY_FILE_MOST, &text, &size);
  if (status == FT_OK) status = ft_public_key_parse(key, text);
  if (status == FT_E_ARGUMENT) status = ft_fail_within(status, "'%s'", path);
  sqlite3_free(text);
  free(real);
  return status;
}

static void add_file(struct keys *keys, const char *folder, const char *name) {
  char *path = NULL;
  if (keys->count == KEYS_MOST || asprintf(&path, "%s/%s", folder, name) < 0) return;
  if (read_key(path, &keys->at[keys->count]) == FT_OK)
    keys->count++;
  else if (keys->refused++ == 0)
    snprintf(keys->reason, 256, "%s", ft_detail());
  free(path);
}

static void add_folder(struct keys *keys, const char *folder) {
  struct dirent **files = NULL;
  const int count = scandir(folder, &files, is_key, alphasort);
  for (int i = 0; i < count; i++) {
    add_file(keys, folder, files[i]->d_name);
    free(files[i]);
  }
  if (count >= 0) free(files);
}

/* secure_getenv: a set-uid program must not be told whom to trust. */
static void add_user_folder(struct keys *keys) {
  const char *const config = secure_getenv("XDG_CONFIG_HOME"), *const home = secure_getenv("HOME");
  char *folder = NULL;
  int made = -1;
  if (config && config[0] == '/')
    made = asprintf(&folder, "%s/fatune/trusted", config);
  else if (home && home[0] == '/')
    made = asprintf(&folder, "%s/.config/fatune/trusted", home);
  if (made < 0) return;
  add_folder(keys, folder);
  free(folder);
}

int ft_trusted_keys(struct ft_public_key **out, int *count, int *refused, char reason[256]) {
  struct keys keys = {.at = calloc(KEYS_MOST, sizeof *keys.at), .reason = reason};
  *out = keys.at;
  *count = *refused = 0;
  reason[0] = '\0';
  if (!keys.at) return ft_fail(FT_E_MEMORY, "no memory for the trusted keys");
  add_user_folder(&keys);
  add_folder(&keys, SYSTEM_FOLDER);
  *count = keys.count;
  *refused = keys.refused;
  return FT_OK;
}
