/* slow_tests.c: whether the long forms of tests are wanted.
 * in -> out: FATUNE_TEST_SLOW=1 in the environment -> true. */
#include "tests/slow_tests.h"

#include <stdlib.h>
#include <string.h>

bool tests_are_slow(void) {
  const char *const given = getenv("FATUNE_TEST_SLOW");
  return given != NULL && strcmp(given, "1") == 0;
}
