/* test_nvrtc_search.c: where NVRTC is looked for when nobody names it.
 * in -> out: wheels in the folders of a Python, of a checkout, of a package -> which file is taken,
 * or what was tried -> Check suite. No library counts but those of the test's folder. */
#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>

#include "generator/status.h"
#include "runtime/nvrtc_search.h"
#include "tests/fake/use_fake.h"
#include "tests/run_program.h"
#include "tests/suites.h"

#define CU13 "/nvidia/cu13/lib/libnvrtc.so.13"
#define CU12 "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"

static struct ft_nvrtc nvrtc;

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...) {
  char words[1024], line[1200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  snprintf(line, sizeof line, "cd %s && PATH=/usr/bin:/bin && { %s; }", folder, words);
  ck_assert_msg(system(line) == 0, "%s", line);
}

/* A Python in `bin`, and a loader that finds what lies in the test's folder alone. */
static void set_up(void) {
  char path[128];
  begin_program_test();
  shell("mkdir bin && : >bin/python3 && chmod +x bin/python3");
  snprintf(path, sizeof path, "%s/bin", folder);
  setenv("PATH", path, 1);
  setenv("FATUNE_TEST_LIBRARIES", folder, 1);
  unsetenv("FATUNE_LIBNVRTC");
}

static void tear_down(void) {
  setenv("PATH", "/usr/bin:/bin", 1);
  end_program_test();
}

static void install(const char *library, const char *at) {
  shell("mkdir -p $(dirname %s) && cp --remove-destination %s/%s %s", at, FATUNE_FAKE_DIR, library,
        at);
}

static void assert_found(const char *at) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, at);
  ck_assert_status(ft_nvrtc_open(&nvrtc), FT_OK);
  ck_assert_str_eq(nvrtc.path, path);
  int major = 0, minor = 0;
  ck_assert_int_eq(nvrtc.version(&major, &minor), 0);
  ck_assert_int_eq(major, 13);
  ft_nvrtc_close(&nvrtc);
  ck_assert_ptr_null(nvrtc.library);
}

/* ---- the Python on PATH ---- */

static const char *const packages[] = {
    "lib/python3.12/site-packages" CU13, "lib/python3.9/dist-packages" CU12,
    "lib/python3/dist-packages" CU13, "local/lib/python3.11/dist-packages" CU12,
    "versions/3.13.1/lib/python3.13/site-packages" CU13};

enum { PACKAGES = sizeof packages / sizeof *packages };

START_TEST(a_pythons_wheel_is_found) {
  install("libfake_nvrtc.so", packages[_i]);
  assert_found(packages[_i]);
}
END_TEST

START_TEST(a_virtual_environment_comes_before_its_python) {
  char path[256];
  shell("mkdir -p venv/bin && ln -s ../../bin/python3 venv/bin/python3");
  snprintf(path, sizeof path, "::/nowhere:%s/venv/bin:%s/bin", folder, folder);
  setenv("PATH", path, 1);
  install("libfake_nvrtc.so", packages[0]);
  assert_found(packages[0]);
  install("libfake_nvrtc.so", "venv/lib/python3.12/site-packages" CU12);
  assert_found("venv/lib/python3.12/site-packages" CU12);
}
END_TEST

START_TEST(folders_of_PATH_may_have_any_length) {
  char path[PATH_MAX + 256];
  memset(path, 'x', sizeof path);
  path[0] = '/';
  snprintf(path + PATH_MAX, 256, ":%s/bin", folder);
  setenv("PATH", path, 1);
  install("libfake_nvrtc.so", packages[0]);
  assert_found(packages[0]);
}
END_TEST

/* Of several the newest, unless it is none. */
START_TEST(the_newest_that_can_be_opened_is_taken) {
#define CU(n) "lib/python3.12/site-packages/nvidia/cu" n "/lib/libnvrtc.so." n
  install("libfake_nvrtc.so", CU("13"));
  install("libfake_cuda.so", CU("14"));
  assert_found(CU("13"));
  install("libfake_nvrtc.so", CU("15"));
  shell("echo text >%s", CU("15"));
  assert_found(CU("13"));
  install("libfake_nvrtc.so", CU("16"));
  assert_found(CU("16"));
  shell("rm %s %s", CU("13"), CU("16"));
  ck_assert_status(ft_nvrtc_open(&nvrtc), FT_E_NO_NVRTC);
  ck_assert_detail("libnvrtc.so.15: file too short");
  ck_assert_detail("libnvrtc.so.14 (lacks nvrtcGetErrorString: NVRTC 11.2 or later is needed)");
#undef CU
}
END_TEST

/* They are opened by name alone, so they have to be there already. */
START_TEST(the_builtins_beside_it_are_loaded) {
  char path[256];
  install("libfake_nvrtc.so", packages[0]);
  install("libfake_cuda.so",
          "lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
  snprintf(path, sizeof path, "%s/%.*s/libnvrtc-builtins.so.13.0", folder,
           (int)(strrchr(packages[0], '/') - packages[0]), packages[0]);
  ck_assert_ptr_null(dlopen(path, RTLD_LAZY | RTLD_NOLOAD));
  assert_found(packages[0]);
  ck_assert_ptr_nonnull(dlopen(path, RTLD_LAZY | RTLD_NOLOAD));
}
END_TEST

START_TEST(what_was_tried_is_told) {
  static const char *const paths[] = {"/nowhere", "", NULL};
  for (int i = 0; i < 3; i++) {
    if (paths[i])
      setenv("PATH", paths[i], 1);
    else
      unsetenv("PATH");
    setenv("FATUNE_LIBNVRTC", "", 1);
    ck_assert_status(ft_nvrtc_open(&nvrtc), FT_E_NO_NVRTC);
    ck_assert_detail("no NVRTC; tried libnvrtc.so.13; libnvrtc.so.12; libnvrtc.so; ");
    ck_assert_detail("FATUNE_LIBNVRTC may name it");
    ck_assert_ptr_null(nvrtc.library);
  }
}
END_TEST

/* ---- around the program ---- */

/* Where the program lies, where the wheel. */
static const struct {
  const char *program, *wheel;
} around[] = {{"build/fatune", ".deps/python" CU13},
              {"build/san/fatune", ".deps/python" CU12},
              {"site-packages/fatune/fatune", "site-packages" CU13},
              {"venv/bin/fatune", "venv/lib/python3.12/site-packages" CU13}};

enum { AROUND = sizeof around / sizeof *around };

static void install_program(const char *at) {
  char built[4096 + 8], *const real = realpath(program, NULL);
  ck_assert_ptr_nonnull(real);
  snprintf(built, sizeof built, "%s_faulty", real);
  free(real);
  shell("mkdir -p $(dirname %s) && cp %s %s", at, built, at);
  snprintf(program, sizeof program, "%s/%s", folder, at);
  setenv("PATH", "/usr/bin:/bin", 1);
}

START_TEST(what_lies_around_the_program_is_found) {
  char path[256];
  install_program(around[_i].program);
  install("libfake_nvrtc.so", around[_i].wheel);
  snprintf(path, sizeof path, "%s/%s", folder, around[_i].wheel);
  expect("doctor", 0);
  expect_output(path);
}
END_TEST

/* Who may write above a build need not be who made it. */
START_TEST(a_checkouts_wheel_is_of_who_built) {
  if (geteuid() != 0) return;
  install_program("build/fatune");
  install("libfake_nvrtc.so", ".deps/python" CU13);
  shell("chown 65534 .deps/python");
  expect("doctor", 0);
  expect_output("NVRTC          missing");
}
END_TEST

Suite *make_nvrtc_search_suite(void) {
  Suite *const suite = suite_create("nvrtc_search");
  TCase *const tests = tcase_create("search");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, a_pythons_wheel_is_found, 0, PACKAGES);
  tcase_add_test(tests, a_virtual_environment_comes_before_its_python);
  tcase_add_test(tests, folders_of_PATH_may_have_any_length);
  tcase_add_test(tests, the_newest_that_can_be_opened_is_taken);
  tcase_add_test(tests, the_builtins_beside_it_are_loaded);
  tcase_add_test(tests, what_was_tried_is_told);
  tcase_add_loop_test(tests, what_lies_around_the_program_is_found, 0, AROUND);
  tcase_add_test(tests, a_checkouts_wheel_is_of_who_built);
  suite_add_tcase(suite, tests);
  return suite;
}
