/* slow_tests.h: whether the long forms of tests are wanted, and how many times the time of a plain
 * build this one may take. in -> out: FATUNE_TEST_SLOW=1 in the environment -> true. */
#ifndef TESTS_SLOW_TESTS_H
#define TESTS_SLOW_TESTS_H

#include <stdbool.h>

bool tests_are_slow(void);

/* FATUNE_TEST_COST, of tests/CMakeLists.txt, as text. */
#define FT_AS_TEXT(number) #number
#define FT_TEXT_OF(macro)  FT_AS_TEXT(macro)
#define TEST_COST_TEXT     FT_TEXT_OF(FATUNE_TEST_COST)

#endif
