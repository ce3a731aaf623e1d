/* test_program_bundle.c: bundles as the program signs and looks them through.
 * in -> out: keys with a passphrase and without, bundles -> exit codes, words -> Check suite. */
#include "tests/suites.h"

#include "tests/run_program.h"
#include "tests/store_fixture.h"
#include "tests/trust_lab.h"

#define SIGNED FATUNE_TESTS_DIR "/signed/"

START_TEST(the_program_signs_and_verifies) {
  char line[512], bundle[160];
  snprintf(line, sizeof line, "%s/config", folder);
  setenv("XDG_CONFIG_HOME", line, 1);
  snprintf(line, sizeof line, "mkdir -p %s/config/fatune/trusted && chmod -R go-w %s/config",
           folder, folder);
  ck_assert_int_eq(system(line), 0);
  snprintf(bundle, sizeof bundle, "%s/sm_80.fatune", folder);
  expect("cache import '" SIGNED "sm_80.fatune'", 0);
  snprintf(line, sizeof line,
           "cache export --allow-empty --gpu sm_80 -o '%s' --sign '" SIGNED "test.key'", bundle);
  expect(line, 0);
  expect_output("signed by FF7F39BAAA14DC56");
  snprintf(line, sizeof line, "cache verify '%s'", bundle);
  expect(line, 0);
  expect_output("sound; the signature is by the key FF7F39BAAA14DC56, which is not trusted");
  snprintf(line, sizeof line, "cp '" SIGNED "test.pub' %s/config/fatune/trusted/", folder);
  ck_assert_int_eq(system(line), 0);
  snprintf(line, sizeof line, "cache verify '%s'", bundle);
  expect(line, 0);
  expect_output("sound; signed by FF7F39BAAA14DC56: fatune sm_80: ");
  setenv("FATUNE_SYSTEM_PATH", folder, 1);
  setenv("FATUNE_TRUST", "signed", 1);
  expect("doctor", 0);
  expect_output("sm_80.fatune: signed by FF7F39BAAA14DC56");
  expect("doctor --json", 0);
  /* Without --sign no signature of another file stays beside. */
  snprintf(line, sizeof line, "cache export --allow-empty --gpu sm_80 -o '%s'", bundle);
  expect(line, 0);
  snprintf(line, sizeof line, "%s.minisig", bundle);
  ck_assert_int_ne(access(line, F_OK), 0);
  expect("doctor", 1);
  expect_output("there is no signature");
  snprintf(line, sizeof line, "cache verify '%s'", bundle);
  expect(line, 6);
  expect("cache export --allow-empty --gpu sm_80 -o /dev/null/x --sign /nowhere/key", 2);
}
END_TEST

/* The trials that are no winners, and those of other GPUs, would be gone. */
START_TEST(an_export_does_not_replace_its_own_store) {
  static const char *const own[] = {"tuning.db", "kernels.db"};
  char line[512], path[160];
  snprintf(line, sizeof line, "ln %s/tuning.db %s/other.fatune", folder, folder);
  expect("cache import '" SIGNED "sm_80.fatune'", 0);
  ck_assert_int_eq(system(line), 0); /* under another name */
  snprintf(path, sizeof path, "%s/tuning.db", folder);
  const int64_t trials = number_of(path, "SELECT count(*) FROM trials");
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    snprintf(line, sizeof line, "cache export --allow-empty --gpu sm_90 -o '%s/%s'", folder,
             own[i]);
    expect(line, 2);
    expect_message("it is the cache that is exported");
  }
  snprintf(line, sizeof line, "cache export --allow-empty --gpu sm_90 -o '%s/other.fatune'",
           folder);
  expect(line, 2);
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM trials"), trials);
  expect("cache verify", 0);
  setenv("FATUNE_CACHE", "memory", 1); /* whose stores have no names */
  snprintf(line, sizeof line, "cache export --allow-empty --gpu sm_90 -o '%s/new.fatune'", folder);
  expect(line, 0);
  expect(line, 0); /* a plain file that is there */
}
END_TEST

START_TEST(what_would_not_be_kept_is_not_taken_in) {
  static const char *const modes[] = {"memory", "off"};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    setenv("FATUNE_CACHE", modes[i], 1);
    expect("cache import '" SIGNED "sm_80.fatune'", 6);
    expect_message("nothing that is taken in would be kept");
    expect("cache merge '" SIGNED "sm_80.fatune'", 6);
  }
  setenv("FATUNE_CACHE", "rw", 1);
  expect("cache import '" SIGNED "sm_80.fatune'", 0);
}
END_TEST

START_TEST(options_of_another_action_are_refused) {
  static const char *const told[][2] = {
      {"cache stats --all", "--all is of `cache list`; stats has no such option"},
      {"cache gc --cap 1M --repair", "--repair is of `cache verify`"},
      {"cache list --cap 0", "--cap is of `cache gc`"},
      {"cache stats -o /nowhere/x", "--output is of `cache export`"},
      {"cache import /nowhere/x --sign /nowhere/key", "--sign is of `cache export`"},
      {"cache merge /nowhere/x --passphrase-file /nowhere/p", "--passphrase-file is of `cache ex"},
      {"cache verify --allow-empty", "--allow-empty is of `cache export`"},
      {"cache export --gpu a100 -o /nowhere/x --passphrase-file /nowhere/p", "--sign KEYFILE is "}};
  for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
    expect(told[i][0], 2);
    expect_message(told[i][1]);
  }
  expect("cache list --all", 0);
}
END_TEST

START_TEST(only_own_caches_are_repaired) {
  expect("cache verify --repair '" SIGNED "sm_80.fatune'", 2);
  expect_message("--repair mends this user's caches");
  expect("cache verify '" SIGNED "sm_80.fatune'", 0);
}
END_TEST

/* By the shell, without a terminal that a passphrase could be asked at. */
static int sign_with(const char *typed, const char *options) {
  char line[8192];
  snprintf(line, sizeof line,
           "printf '%s' | setsid -w '%s' cache export --allow-empty --gpu sm_80 -o "
           "'%s/sm_80.fatune' --sign '%s/hidden.key' %s >'%s/out' 2>'%s/err'",
           typed, program, folder, folder, options, folder, folder);
  return take_end(line, system(line));
}

static void write_text(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  write_bytes(path, text, strlen(text));
}

/* From a file, of which the first line counts, or as typed. */
START_TEST(a_key_with_a_passphrase_signs) {
  char text[512], options[160], path[128], longer[2000];
  snprintf(path, sizeof path, "%s/test.pub", folder);
  struct ft_secret_key key = trust_lab_key(path);
  trust_lab_hide(&key, "correct horse", 16 << 20, text);
  write_text("hidden.key", text);
  write_text("passphrase", "correct horse\nanother line\n");
  snprintf(options, sizeof options, "--passphrase-file '%s/passphrase'", folder);
  ck_assert_int_eq(sign_with("", options), 0);
  expect_output("signed by ");
  snprintf(path, sizeof path, "%s/sm_80.fatune.minisig", folder);
  ck_assert_int_eq(unlink(path), 0);
  ck_assert_int_eq(sign_with("correct horse\\n", ""), 0);
  ck_assert_int_eq(access(path, F_OK), 0);

  write_text("passphrase", "wrong horse\n");
  ck_assert_int_eq(sign_with("", options), 2);
  expect_message("hidden.key");
  expect_message("passphrase");
  ck_assert_int_eq(sign_with("wrong horse\\n", ""), 2);
  ck_assert_int_eq(sign_with("", ""), 2);
  expect_message("no passphrase was given; --passphrase-file FILE may hold it");
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  write_text("passphrase", longer);
  ck_assert_int_eq(sign_with("", options), 2);
  expect_message("passphrase");
  snprintf(options, sizeof options, "--passphrase-file '%s/none'", folder);
  ck_assert_int_eq(sign_with("", options), 2);
  expect_message("/none");
}
END_TEST

Suite *make_program_bundle_suite(void) {
  Suite *const suite = suite_create("program_bundle");
  TCase *const tests = tcase_create("program");
  tcase_add_checked_fixture(tests, begin_program_test, end_program_test);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, the_program_signs_and_verifies);
  tcase_add_test(tests, an_export_does_not_replace_its_own_store);
  tcase_add_test(tests, what_would_not_be_kept_is_not_taken_in);
  tcase_add_test(tests, options_of_another_action_are_refused);
  tcase_add_test(tests, only_own_caches_are_repaired);
  tcase_add_test(tests, a_key_with_a_passphrase_signs);
  suite_add_tcase(suite, tests);
  return suite;
}
