/* test_recipes.c: the recipes of README.md and generator/README.md lead to files that exist.
 * in -> out: what stands in backquotes below "To add" -> Check suite. That a recipe is complete is
 * said elsewhere: of a word of a request by test_request_words.c, of a switch by test_golden.c and
 * test_emulator_configs.c. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/family.h"
#include "tests/suites.h"

static const struct {
  const char *file, *from, *to; /* the section from this line to the next that begins so */
  int paths;                    /* no fewer are named */
} recipes[] = {
    {"README.md", "\n### To add", "\n## ", 12},
    {"generator/README.md", "\n## To add", "\n## ", 8},
};

/* Whether the file is there, from the root or from the folder of the document. NAME stands for
 * every family. */
static bool exists(const char *path, const char *document) {
  char place[512];
  const char *const slash = strrchr(document, '/');
  const int folder = slash ? (int)(slash - document) + 1 : 0;
  for (int from_folder = 0; from_folder < (folder > 0 ? 2 : 1); from_folder++) {
    (void)snprintf(place, sizeof place, FATUNE_SOURCE_DIR "/%.*s%s", from_folder ? folder : 0,
                   document, path);
    if (access(place, F_OK) == 0) return true;
  }
  return false;
}

static void expect_path(const char *path, const char *document) {
  const char *const name = strstr(path, "NAME");
  const struct ft_family *family;
  if (name == NULL) {
    ck_assert_msg(exists(path, document), "%s names '%s', which is not there", document, path);
    return;
  }
  for (int f = 0; (family = ft_family_at(f)) != NULL; f++) {
    char filled[256];
    (void)snprintf(filled, sizeof filled, "%.*s%s%s", (int)(name - path), path, family->name,
                   name + strlen("NAME"));
    ck_assert_msg(exists(filled, document), "%s names '%s', but there is no '%s'", document, path,
                  filled);
  }
}

/* A word of a path's letters with a slash in it, or with the ending of a file. */
static bool is_path(const char *word) {
  static const char *const endings[] = {".c", ".h", ".def", ".lua", ".md"};
  const char *const dot = strrchr(word, '.');
  if (word[0] == '.' ||
      word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./")] != 0)
    return false;
  for (int i = 0; dot != NULL && i < 5; i++)
    if (strcmp(dot, endings[i]) == 0) return true;
  return strchr(word, '/') != NULL;
}

static char *text_of(const char *document) {
  char path[256];
  (void)snprintf(path, sizeof path, FATUNE_SOURCE_DIR "/%s", document);
  FILE *const stream = fopen(path, "rb");
  ck_assert_msg(stream != NULL, "%s", path);
  char *const text = calloc(1, 1 << 20);
  ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, stream), 0);
  ck_assert_int_eq(fclose(stream), 0);
  return text;
}

START_TEST(every_file_named_exists) {
  char *const text = text_of(recipes[_i].file);
  char *at = strstr(text, recipes[_i].from);
  ck_assert_msg(at != NULL, "%s has no recipes", recipes[_i].file);
  char *const end = strstr(at + 1, recipes[_i].to);
  if (end != NULL) *end = '\0';
  int paths = 0;
  for (at = strchr(at, '`'); at != NULL; at = strchr(at, '`')) {
    char *const word = ++at, *const close = strchr(at, '`');
    ck_assert_ptr_nonnull(close);
    *close = '\0';
    at = close + 1;
    if (!is_path(word) || strncmp(word, "templates/parts/NAME", 20) == 0) continue;
    expect_path(word, recipes[_i].file);
    paths += 1;
  }
  ck_assert_int_ge(paths, recipes[_i].paths);
  free(text);
}
END_TEST

Suite *make_recipes_suite(void) {
  Suite *const suite = suite_create("recipes");
  TCase *const tests = tcase_create("all");
  tcase_add_loop_test(tests, every_file_named_exists, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
