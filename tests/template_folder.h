/* template_folder.h: throw-away template folders for the tests of Lua and emission.
 * in -> out: file name and text -> a folder with the real engine.lua, small tables and that file.
 */
#ifndef TESTS_TEMPLATE_FOLDER_H
#define TESTS_TEMPLATE_FOLDER_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"
#include "generator/template_files.h"

struct template_folder {
  char path[64];
};

static const char *const folder_files[] = {"engine.lua",          "gpus.lua",   "mma_forward.cu.in",
                                           "wgmma_forward.cu.in", "part.cu.in", "unused.txt",
                                           "sub/deep.cu.in"};

static inline void put_file(const struct template_folder *folder, const char *name,
                            const char *text, size_t length) {
  char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", folder->path, name);
  FILE *const file = fopen(path, "wb");
  ck_assert_msg(file != NULL, "cannot write %s", path);
  ck_assert_uint_eq(fwrite(text, 1, length, file), length);
  ck_assert_int_eq(fclose(file), 0);
}

static inline void put(const struct template_folder *folder, const char *name, const char *text) {
  put_file(folder, name, text, strlen(text));
}

/* mma_forward.cu.in is main_template; gpus.lua is the real one. */
static inline struct template_folder make_folder(const char *main_template) {
  struct template_folder folder = {"/tmp/fatune-templates-XXXXXX"};
  ck_assert_ptr_nonnull(mkdtemp(folder.path));
  char sub[80];
  (void)snprintf(sub, sizeof sub, "%s/sub", folder.path);
  ck_assert_int_eq(mkdir(sub, 0700), 0);
  struct ft_template_files files;
  ck_assert_int_eq(ft_template_files_open(&files, NULL), FT_OK);
  static const char *const real[] = {"engine.lua", "gpus.lua"};
  for (int i = 0; i < 2; ++i) {
    const struct ft_template *const file = ft_template_files_find(&files, real[i]);
    ck_assert_ptr_nonnull(file);
    put_file(&folder, real[i], file->text, file->length);
  }
  ft_template_files_close(&files);
  put(&folder, "mma_forward.cu.in", main_template);
  return folder;
}

static inline void remove_folder(const struct template_folder *folder) {
  char path[128];
  for (size_t i = 0; i < sizeof folder_files / sizeof folder_files[0]; ++i) {
    (void)snprintf(path, sizeof path, "%s/%s", folder->path, folder_files[i]);
    unlink(path);
  }
  (void)snprintf(path, sizeof path, "%s/sub", folder->path);
  rmdir(path);
  ck_assert_int_eq(rmdir(folder->path), 0);
}

#endif
