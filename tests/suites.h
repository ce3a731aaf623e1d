/* suites.h: the prototypes of all Check suites; CMake makes the list from tests/test_*.c. */
#ifndef TESTS_SUITES_H
#define TESTS_SUITES_H

#include <check.h>

#define SUITE(module) Suite *make_##module##_suite(void);
#include "suites.def"
#undef SUITE

#endif
