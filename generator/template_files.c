/* template_files.c: all template files by name, in memory.
 * in -> out: the embedded array, or a folder of files -> sorted rows, their common digest. */
#include "generator/template_files.h"

#include <errno.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

enum { MAX_FILES = 512, MAX_FILE_BYTES = 1 << 20 };

static int compare_names(const void *a, const void *b) {
  return strcmp(((const struct ft_template *)a)->name, ((const struct ft_template *)b)->name);
}

/* Editors leave other files beside templates; those are not part of them. */
static bool is_template(const char *name) {
  const size_t length = strlen(name);
  return (length > 4 && strcmp(name + length - 4, ".lua") == 0) ||
         (length > 6 && strcmp(name + length - 6, ".cu.in") == 0);
}

static int use_embedded(struct ft_template_files *files) {
  size_t count = 0;
  while (ft_templates[count].name != NULL) ++count;
  files->rows = calloc(count + 1, sizeof *files->rows);
  if (files->rows == NULL) return ft_fail(FT_E_MEMORY, "no memory for %zu templates", count);
  for (size_t i = 0; i < count; ++i)
    if (is_template(ft_templates[i].name)) files->rows[files->count++] = ft_templates[i];
  return FT_OK;
}

/* Reads one file whole; *text is owned by the caller. */
static int read_file(const char *path, char **text, size_t *length) {
  FILE *const file = fopen(path, "rb");
  if (file == NULL) return ft_fail(FT_E_IO, "template %s: %s", path, strerror(errno));
  int status = FT_OK;
  char *const bytes = malloc(MAX_FILE_BYTES + 1);
  if (bytes == NULL) {
    status = ft_fail(FT_E_MEMORY, "template %s: out of memory", path);
    goto done;
  }
  *length = fread(bytes, 1, MAX_FILE_BYTES + 1, file);
  if (ferror(file))
    status = ft_fail(FT_E_IO, "template %s: %s", path, strerror(errno));
  else if (*length > MAX_FILE_BYTES)
    status = ft_fail(FT_E_IO, "template %s is larger than %d bytes", path, MAX_FILE_BYTES);

done:
  fclose(file);
  if (status != FT_OK) {
    free(bytes);
    return status;
  }
  char *const fitting = realloc(bytes, *length + 1);
  *text = fitting == NULL ? bytes : fitting;
  return FT_OK;
}

static int add_file(struct ft_template_files *files, const char *path, const char *name) {
  if (files->count == MAX_FILES)
    return ft_fail(FT_E_IO, "template folder: more than %d files at %s", MAX_FILES, path);
  char *text = NULL;
  size_t length = 0;
  FT_TRY(read_file(path, &text, &length));
  files->owned[files->owned_count++] = text;
  char *const own_name = strdup(name);
  if (own_name == NULL) return ft_fail(FT_E_MEMORY, "template %s: out of memory", path);
  files->owned[files->owned_count++] = own_name;
  files->rows[files->count++] = (struct ft_template){own_name, text, length};
  return FT_OK;
}

static int read_folder(struct ft_template_files *files, const char *folder) {
  files->rows = calloc(MAX_FILES, sizeof *files->rows);
  files->owned = calloc(2 * MAX_FILES, sizeof *files->owned);
  if (files->rows == NULL || files->owned == NULL)
    return ft_fail(FT_E_MEMORY, "template folder: out of memory");
  char *const root = strdup(folder);
  if (root == NULL) return ft_fail(FT_E_MEMORY, "template folder: out of memory");

  int status = FT_OK;
  size_t root_length = strlen(root);
  while (root_length > 1 && root[root_length - 1] == '/') root[--root_length] = '\0';
  char *const paths[] = {root, NULL};
  FTS *const walk = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL);
  if (walk == NULL) {
    status = ft_fail(FT_E_IO, "template folder '%s': %s", folder, strerror(errno));
    goto done;
  }
  for (FTSENT *entry; (entry = fts_read(walk)) != NULL;) {
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS) {
      status =
          ft_fail(FT_E_IO, "template folder: %s: %s", entry->fts_path, strerror(entry->fts_errno));
      goto done;
    }
    if (entry->fts_info == FTS_F && is_template(entry->fts_name))
      FT_CHECK(add_file(files, entry->fts_path, entry->fts_path + root_length + 1));
  }

done:
  if (walk != NULL) fts_close(walk);
  free(root);
  return status;
}

int ft_template_files_open(struct ft_template_files *files, const char *folder) {
  *files = (struct ft_template_files){0};
  const int status = folder == NULL ? use_embedded(files) : read_folder(files, folder);
  if (status != FT_OK) {
    ft_template_files_close(files);
    return status;
  }
  qsort(files->rows, files->count, sizeof *files->rows, compare_names);
  return FT_OK;
}

void ft_template_files_close(struct ft_template_files *files) {
  for (size_t i = 0; i < files->owned_count; ++i) free(files->owned[i]);
  free(files->owned);
  free(files->rows);
  *files = (struct ft_template_files){0};
}

const struct ft_template *ft_template_files_find(const struct ft_template_files *files,
                                                 const char *name) {
  const struct ft_template wanted = {.name = name};
  return bsearch(&wanted, files->rows, files->count, sizeof *files->rows, compare_names);
}

struct ft_digest ft_template_files_digest(const struct ft_template_files *files) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  for (size_t i = 0; i < files->count; ++i)
    ft_hasher_section(&hasher, files->rows[i].name, files->rows[i].text, files->rows[i].length);
  return ft_hasher_final(&hasher);
}
