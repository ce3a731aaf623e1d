/* driver_lab.h: what the suites of the emulated driver share: an a100 without a session.
 * in -> out: nothing -> driver, limits, ordinal; a call -> its number and words, as refused. */
#ifndef TESTS_DRIVER_LAB_H
#define TESTS_DRIVER_LAB_H

#include <check.h>
#include <string.h>

#include "runtime/emulator/driver.h"
#include "tests/fake/use_fake.h"
#include "tests/generator_cases.h"

static struct ft_driver driver;
static struct ft_arch a100;
static int ordinal;

static inline void set_up(void) {
  seed_cases();
  a100 = known_gpu("a100");
  ck_assert_status(ft_emulator_open(&driver, &a100, &ordinal), FT_OK);
}

/* The call failed with this number, and its words hold the part. */
#define ck_assert_refused(call, number, part)                                                      \
  do {                                                                                             \
    const cu_result ck_result = (call);                                                            \
    ck_assert_int_eq(ck_result, number);                                                           \
    ft_driver_status(&driver, ck_result, #call);                                                   \
    ck_assert_detail(part);                                                                        \
  } while (0)

#endif
