/* test_named_files.c: files that a user names to `fatune cache`, and that are not what they should
 * be. in -> out: an action, a folder, pipe, text, nothing ... -> an exit code and a message that
 * names the file and says what is allowed; what lay there lies there still -> Check suite. */
#include <sys/stat.h>

#include "tests/run_program.h"
#include "tests/suites.h"

static void make_places(void) {
  char line[1024];
  begin_program_test();
  snprintf(line, sizeof line,
           "cd %s && mkdir folder && : >empty && echo a text >text && echo 'bucket=\"x\"' "
           ">h200.trials && mkfifo pipe && "
           "ln -s nowhere dangling && ln -s pipe link && ln -s text to_text && head -c 5000 "
           "/dev/zero >zeros",
           folder);
  ck_assert_int_eq(system(line), 0);
}

static const struct {
  const char *name;
  int code;
  const char *message;
} places[] = {
    {"folder", 2, "folder', a folder; allowed: what `fatune cache export` wrote"},
    {"pipe", 2, "pipe', a device, pipe or socket; allowed: what `fatune cache export` wrote"},
    {"link", 2, "link', a device, pipe or socket; allowed: what `fatune cache export` wrote"},
    {"missing", 1, "missing' cannot be read: No such file or directory"},
    {"dangling", 1, "dangling' cannot be read: No such file or directory"},
    {"text/x", 1, "text/x' cannot be read: Not a directory"},
    {"empty", 6, "empty' is empty; allowed: what `fatune cache export` wrote"},
    {"text", 6, "text' does not begin as a file of fatune; allowed: what `fatune cache export`"},
    {"h200.trials", 6,
     "h200.trials' is an export of winners as text, for reading and for the build"},
    {"zeros", 6, "zeros' does not begin as a file of fatune; allowed: what `fatune cache export`"},
};

enum { PLACES = sizeof places / sizeof *places };

START_TEST(what_is_no_file_of_fatune_is_told) {
  static const char *const actions[] = {"verify", "import", "merge"};
  for (int i = 0; i < 3; ++i) {
    char line[256];
    snprintf(line, sizeof line, "cache %s %s/%s", actions[i], folder, places[_i].name);
    expect(line, places[_i].code);
    expect_message(places[_i].message);
  }
}
END_TEST

START_TEST(no_name_at_all_is_told) {
  expect("cache verify ''", 1);
  expect_message("FILE '' cannot be read: No such file or directory");
  expect("cache import ''", 1);
  expect_message("FILE '' cannot be read: No such file or directory");
}
END_TEST

START_TEST(a_bad_file_does_not_keep_others_out) {
  char line[512];
  snprintf(line, sizeof line, "tune d64 nq128 --gpu a100 --effort quick -q --cache-dir %s/other",
           folder);
  expect(line, 0);
  snprintf(line, sizeof line, "cache merge %s/text %s/other/tuning.db %s/missing", folder, folder,
           folder);
  expect(line, 6);
  expect_message("text' does not begin as a file of fatune");
  expect_message("missing' cannot be read: No such file or directory");
  expect_message("2 of 3 files were not taken in");
  expect_output("other/tuning.db: ");
}
END_TEST

/* Damage outweighs what could not be read, in whatever order they come. */
START_TEST(the_exit_code_tells_of_damage) {
  char line[512];
  snprintf(line, sizeof line, "cache verify %s/missing %s/empty %s/folder", folder, folder, folder);
  expect(line, 6);
  expect_output("missing: no file of fatune that can be read");
  expect_output("folder: no file of fatune that can be read");
}
END_TEST

static mode_t kind_of(const char *name) {
  char path[128];
  struct stat state;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  ck_assert_int_eq(lstat(path, &state), 0);
  return state.st_mode & S_IFMT;
}

/* Not by root either, who could put a file in the place of /dev/null or /dev/stdout. */
START_TEST(an_export_takes_the_place_of_files_alone) {
  static const char *const links[] = {"link", "dangling", "to_text"};
  char line[256];
  snprintf(line, sizeof line, "cache export --allow-empty --gpu a100 -o %s/", folder);
  const size_t end = strlen(line);
  strcpy(line + end, "pipe");
  expect(line, 6);
  expect_message("pipe': it is a device, pipe or socket; allowed: a plain file or a new name");
  for (int i = 0; i < 3; i++) {
    strcpy(line + end, links[i]);
    expect(line, 6);
    expect_message("': it is a link; allowed: a plain file or a new name");
    ck_assert_int_eq(kind_of(links[i]), S_IFLNK);
  }
  strcpy(line + end, "folder");
  expect(line, 6);
  expect_message("folder': it is a folder; allowed: a plain file or a new name");
  ck_assert_int_eq(kind_of("pipe"), S_IFIFO);
  ck_assert_int_eq(kind_of("folder"), S_IFDIR);
  strcpy(line + end, "text");
  expect(line, 0);
  strcpy(line + end, "new");
  expect(line, 0);
}
END_TEST

/* Stores have the form with a write-ahead log, which SQLite makes even to read. */
START_TEST(a_store_at_rest_is_left_as_it_was) {
  static const char *const actions[] = {"verify", "import", "merge"};
  static const struct {
    const char *name;
    int code;
  } files[] = {{"tuning.db", 0}, {"kernels.db", 0}, {"linked.db", 0}, {"damaged.db", 6}};
  char line[1024];
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  expect("tune d64 nq512 --gpu a100 --effort quick --shard 1/7 -q", 0);
  snprintf(line, sizeof line,
           "cd %s && mkdir theirs && mv tuning.db kernels.db theirs && cd theirs && "
           "ln -s ../theirs/tuning.db linked.db && cp kernels.db damaged.db && "
           "dd if=/dev/urandom of=damaged.db bs=8192 seek=2 count=1 conv=notrunc status=none && "
           "cp -a . ../before",
           folder);
  ck_assert_int_eq(system(line), 0);
  for (int i = 0; i < 12; i++) {
    snprintf(line, sizeof line, "cache %s %s/theirs/%s", actions[i / 4], folder, files[i % 4].name);
    expect(line, files[i % 4].code);
    snprintf(line, sizeof line, "diff -r %s/before %s/theirs", folder, folder);
    ck_assert_msg(system(line) == 0, "after %s of %s", actions[i / 4], files[i % 4].name);
  }
}
END_TEST

/* A new user, or a folder mistyped: the list is empty for a reason. */
START_TEST(no_caches_yet_is_told) {
  static const char *const actions[] = {"list", "stats", "verify", "gc --cap 1M"};
  for (int i = 0; i < 4; ++i) {
    char line[256];
    snprintf(line, sizeof line, "cache %s --cache-dir %s/missing", actions[i], folder);
    expect(line, 0);
    expect_message("missing/tuning.db' nor '");
    expect_message("missing/kernels.db' is there yet");
  }
}
END_TEST

Suite *make_named_files_suite(void) {
  Suite *const suite = suite_create("named_files");
  TCase *const tests = tcase_create("files");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, make_places, end_program_test);
  tcase_add_loop_test(tests, what_is_no_file_of_fatune_is_told, 0, PLACES);
  tcase_add_test(tests, no_name_at_all_is_told);
  tcase_add_test(tests, a_bad_file_does_not_keep_others_out);
  tcase_add_test(tests, the_exit_code_tells_of_damage);
  tcase_add_test(tests, an_export_takes_the_place_of_files_alone);
  tcase_add_test(tests, a_store_at_rest_is_left_as_it_was);
  tcase_add_test(tests, no_caches_yet_is_told);
  suite_add_tcase(suite, tests);
  return suite;
}
