/* gpu_lab.h: what the GPU suites share: one session on the GPU with caches of its own, a seed,
 * checks. in -> out: environment -> session; internal request -> public one; status, CUresult ->
 * assertion. FATUNE_TEST_EMULATED=h200 emulates that GPU instead, so that what these tests do can
 * be rehearsed on a machine without one. */
#ifndef TESTS_GPU_GPU_LAB_H
#define TESTS_GPU_GPU_LAB_H

#include <check.h>

#include "runtime/session.h"

struct gpu_lab {
  fatune_session *session; /* its context is current in the main thread */
  char folder[64];         /* caches and whatever a test writes; removed at the end */
  uint64_t seed;           /* FATUNE_TEST_SEED, else from the clock */
  int threads;             /* cores */
  bool timing;             /* FATUNE_TEST_TIMING=1: times that are too long fail */
};

/* Opens everything; on failure says why on stderr. */
bool gpu_lab_open(void);
void gpu_lab_close(void);
const struct gpu_lab *gpu_lab(void);

/* A seed for one test: the lab's, mixed with a number of the test's own. */
uint64_t gpu_seed(uint64_t salt);

/* Splitmix64; below: 0 .. limit - 1. */
uint64_t gpu_random(uint64_t *state);
int gpu_random_below(uint64_t *state, int limit);

double gpu_seconds(void); /* CLOCK_MONOTONIC */

/* Told always; a limit only where someone says that the machine is quiet. */
void gpu_judge_time(const char *what, double us, double limit_us);

fatune_request gpu_public_request(const struct ft_request *request);

/* Parses a request's text; fails the test when it does not parse. */
struct ft_request gpu_request(const char *text);

/* config NULL: the plan chooses. */
fatune_plan *gpu_plan(const struct ft_request *request, const char *config);
/* Of a struct ft_problem_run; its payload is a plan. */
int gpu_run_and_wait(void *plan, const fatune_arguments *arguments);

/* The text of a config, or of a request; to be freed. */
char *gpu_config_text(const struct ft_config *config);
char *gpu_request_text(const struct ft_request *request);

/* A function of the driver that fatune itself does not use. */
void *gpu_driver_symbol(const char *name);

/* The test fails, with detail and seed, unless the expression is `expected`. */
#define gpu_assert_status(expression, expected)                                                    \
  do {                                                                                             \
    const int gpu_status = (expression);                                                           \
    ck_assert_msg(gpu_status == (expected), "%s is %d, not %d: %s (FATUNE_TEST_SEED=%llu)",        \
                  #expression, gpu_status, (int)(expected), fatune_detail(),                       \
                  (unsigned long long)gpu_lab()->seed);                                            \
  } while (0)

#define gpu_assert_ok(expression) gpu_assert_status(expression, FATUNE_OK)

/* The same for a call of the driver. */
#define gpu_assert_cuda(expression)                                                                \
  gpu_assert_ok(ft_driver_status(&gpu_lab()->session->driver, (expression), #expression))

#endif
