/* launch_lab.h: what the suites of ft_launch_prepare share.
 * in -> out: arguments -> launch; arguments that are wrong in one field -> a detail with the name,
 * the value and what is allowed. A suite sets request, config, arch and good up; `good` passes. */
#ifndef TESTS_LAUNCH_LAB_H
#define TESTS_LAUNCH_LAB_H

#include <string.h>

#include "generator/status.h"
#include "runtime/launch.h"
#include "tests/fake/use_fake.h"

static struct ft_request request;
static struct ft_config config;
static struct ft_arch arch;
static fatune_arguments good;
static struct ft_budget budget; /* of the last prepare, likewise plan and launch */
static struct ft_launch_plan plan;
static struct ft_launch launch;

/* Addresses are never followed by ft_launch_prepare. */
static inline void *at(uintptr_t address) {
  return (void *)address;
}

static inline void set_plan(void) {
  budget = ft_budget_of(&request, &config, &arch);
  plan = (struct ft_launch_plan){
      .request = &request, .config = &config, .arch = &arch, .budget = &budget};
}

static inline int prepare(const fatune_arguments *arguments) {
  memset(&launch, 0x5a, sizeof launch);
  set_plan();
  return ft_launch_prepare(&launch, &plan, arguments);
}

static inline void expect_bad(const fatune_arguments *bad, const char *name, const char *allowed) {
  ck_assert_status(prepare(bad), FT_E_ARGUMENT);
  ck_assert_detail(name);
  ck_assert_detail(allowed);
  ck_assert_status(prepare(&good), FT_OK);
}

#define BAD(field, value, name, allowed)                                                           \
  do {                                                                                             \
    fatune_arguments bad = good;                                                                   \
    bad.field = value;                                                                             \
    expect_bad(&bad, name, allowed);                                                               \
  } while (0)

#endif
