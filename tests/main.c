/* main.c: runs the Check suites of tests/test_*.c.
 * in -> out: suite names (none: all) -> Check's report; exit 0 only if tests ran and all passed.
 * Check forks per test, so nothing here may open the CUDA driver or NVRTC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/slow_tests.h"
#include "tests/suites.h"

struct named_suite {
  const char *name;
  Suite *(*make)(void);
};

static const struct named_suite suites[] = {
#define SUITE(module) {#module, make_##module##_suite},
#include "suites.def"
#undef SUITE
};

enum { SUITE_COUNT = (int)(sizeof suites / sizeof suites[0]) };

static const struct named_suite *find_suite(const char *name) {
  for (int i = 0; i < SUITE_COUNT; i++)
    if (strcmp(suites[i].name, name) == 0) return &suites[i];
  return NULL;
}

static int explain_unknown_suite(const char *name) {
  fprintf(stderr, "fatune_tests: no suite '%s'; there are:", name);
  for (int i = 0; i < SUITE_COUNT; i++) fprintf(stderr, " %s", suites[i].name);
  fputc('\n', stderr);
  return EXIT_FAILURE;
}

/* What CTest sets, where a suite is run by hand: the folder of the build, which is that of this
 * program; caches below it, not those of the person who runs this; no winners that ship. */
static int set_environment(void) {
  char build[4096], home[sizeof build + 32];
  if (getenv("FATUNE_BUILD_DIR") != NULL) return 0;
  const ssize_t length = readlink("/proc/self/exe", build, sizeof build - 1);
  if (length < 0) return -1;
  build[length] = '\0';
  *strrchr(build, '/') = '\0';
  if (setenv("FATUNE_BUILD_DIR", build, 1) != 0 || setenv("FATUNE_SHIPPED", "off", 1) != 0)
    return -1;
  snprintf(home, sizeof home, "%s/test-home/cache", build);
  if (setenv("XDG_CACHE_HOME", home, 1) != 0) return -1;
  snprintf(home, sizeof home, "%s/test-home/state", build);
  return setenv("XDG_STATE_HOME", home, 1);
}

int main(int argc, char **argv) {
  /* Check's own 4 s are too few for tests that compile kernels on a busy machine. An instrumented
   * build multiplies this and what tests set themselves. */
  if (setenv("CK_DEFAULT_TIMEOUT", "60", 0) != 0) return EXIT_FAILURE;
  if (setenv("CK_TIMEOUT_MULTIPLIER", TEST_COST_TEXT, 0) != 0) return EXIT_FAILURE;
  if (set_environment() != 0) return EXIT_FAILURE;
  for (int i = 1; i < argc; i++)
    if (!find_suite(argv[i])) return explain_unknown_suite(argv[i]);

  SRunner *runner = srunner_create(NULL);
  for (int i = 0; i < SUITE_COUNT; i++)
    if (argc == 1) srunner_add_suite(runner, suites[i].make());
  for (int i = 1; i < argc; i++) srunner_add_suite(runner, find_suite(argv[i])->make());

  srunner_run_all(runner, CK_NORMAL);
  const int ran = srunner_ntests_run(runner);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  if (ran == 0) fputs("fatune_tests: no test was executed\n", stderr);
  return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
