/* folder_states.c: digests of folders, and a ring of them. in -> out: folder_states.h. */
#include "tests/folder_states.h"

#include <dirent.h>

#include "tests/store_fixture.h"

enum { MOST = sizeof((struct folder_states *)0)->at / sizeof(struct ft_digest) };

static void add_file(struct ft_hasher *hasher, const char *folder, const char *name) {
  char path[512];
  struct stat state;
  ck_assert_int_lt(snprintf(path, sizeof path, "%s/%s", folder, name), (int)sizeof path);
  ck_assert_int_eq(lstat(path, &state), 0);
  ft_hasher_section(hasher, "name", name, strlen(name));
  ft_hasher_section(hasher, "mode", &state.st_mode, sizeof state.st_mode);
  if (!S_ISREG(state.st_mode)) return;
  const struct bytes file = read_bytes(path);
  ft_hasher_section(hasher, "bytes", file.data, file.size);
  free(file.data);
}

struct ft_digest folder_state(const char *folder, int use) {
  struct ft_hasher hasher;
  struct stat state;
  struct dirent **names = NULL;
  const int count = scandir(folder, &names, NULL, alphasort);
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "use", &use, sizeof use);
  if (lstat(folder, &state) == 0)
    ft_hasher_section(&hasher, "folder", &state.st_mode, sizeof state.st_mode);
  for (int i = 0; i < count; i++) {
    if (names[i]->d_type != DT_DIR) add_file(&hasher, folder, names[i]->d_name);
    free(names[i]);
  }
  free(names);
  return ft_hasher_final(&hasher);
}

int folder_entries(const char *folder) {
  DIR *const names = opendir(folder);
  int count = 0;
  while (names && readdir(names)) count++;
  if (names) closedir(names);
  return count;
}

void folder_states_note(struct folder_states *states, const struct ft_digest *state) {
  states->at[states->count++ % MOST] = *state;
}

bool folder_states_has(const struct folder_states *states, const struct ft_digest *state) {
  for (unsigned i = 0; i < MOST && i < states->count; i++)
    if (ft_digest_equal(&states->at[i], state)) return true;
  return false;
}
