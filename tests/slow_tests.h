/* slow_tests.h: whether the long forms of tests are wanted.
 * in -> out: FATUNE_TEST_SLOW=1 in the environment -> true. */
#ifndef TESTS_SLOW_TESTS_H
#define TESTS_SLOW_TESTS_H

#include <stdbool.h>

bool tests_are_slow(void);

#endif
