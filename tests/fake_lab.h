/* fake_lab.h: what the suites on the fake GPU share: a session on it.
 * in -> out: nothing -> driver's controls and session; at the end nothing may be left behind. */
#ifndef TESTS_FAKE_LAB_H
#define TESTS_FAKE_LAB_H

#include <check.h>
#include <string.h>

#include "tests/fake/use_fake.h"

struct fake_lab {
  struct fake_controls cuda;
  fatune_session *session; /* in memory only */
};

struct fake_lab fake_lab_open(void);
/* No object and no context may be left. */
void fake_lab_close(const struct fake_lab *lab);

#endif
