/* test_program_setuid.c: the program with another user's rights. in -> out: a copy that runs as
 * somebody else, whom its caller's environment may not command -> what it tells -> Check suite. */
#include "tests/suites.h"

#include <sys/prctl.h>
#include <sys/statvfs.h>

#include "tests/run_program.h"

#define TEMPLATES FATUNE_SOURCE_DIR "/templates"

static const char *templates_of(const json_t *root) {
  const json_t *one;
  size_t i;
  json_array_foreach(json_object_get(root, "checks"), i, one) {
    if (strcmp(text_at(one, "name"), "templates") == 0) return text_at(one, "value");
  }
  return "";
}

/* As root alone, and where the machine lets a program have other rights than its caller. Such a
 * program cannot be traced, as LeakSanitizer wants to. */
static bool rights_can_change(void) {
#ifdef __SANITIZE_ADDRESS__
  return false;
#endif
  struct statvfs state;
  return getuid() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 &&
         statvfs(folder, &state) == 0 && (state.f_flag & ST_NOSUID) == 0;
}

/* Doctor names the templates that are used, and not those that the environment asks for. */
START_TEST(an_ignored_folder_is_not_told_as_used) {
  char line[8192 + 64];
  setenv("FATUNE_TEMPLATE_DIR", TEMPLATES, 1);
  expect("doctor --json", 0);
  json_t *root = document("doctor");
  ck_assert_ptr_nonnull(strstr(templates_of(root), TEMPLATES));
  json_decref(root);
  if (!rights_can_change()) return;
  snprintf(line, sizeof line,
           "cp '%s' '%s/other' && chown 65534 '%s/other' && chmod u+s '%s/other'", program, folder,
           folder, folder);
  ck_assert_int_eq(system(line), 0);
  snprintf(program, sizeof program, "%s/other", folder);
  run("doctor --json"); /* it has no caches, which it tells */
  root = document("doctor");
  ck_assert_ptr_null(strstr(templates_of(root), TEMPLATES));
  ck_assert_ptr_nonnull(strstr(templates_of(root), "built in"));
  json_decref(root);
}
END_TEST

Suite *make_program_setuid_suite(void) {
  Suite *const suite = suite_create("program_setuid");
  TCase *const tests = tcase_create("program_setuid");
  tcase_add_checked_fixture(tests, begin_program_test, end_program_test);
  tcase_add_test(tests, an_ignored_folder_is_not_told_as_used);
  suite_add_tcase(suite, tests);
  return suite;
}
