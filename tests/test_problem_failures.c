/* test_problem_failures.c: the n-th call of the driver, or for memory, fails while a problem is
 * made, checked, explained or measured. in -> out: request, n -> a status, nothing left on the
 * device -> Check suite. */
#include "tests/suites.h"

#include <stdio.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tests/faulty/fault_calls.h"
#include "tests/problem_lab.h"
#include "tuner/search/measure.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_explain.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/problem_verify.h"

static const struct {
  const char *request, *score;
  bool forward_by_kernel; /* what a backward needs is computed on the GPU */
} cases[] = {
    {"forward bf16 d16 nq20 nk24 hq2 sinks", NULL, false},
    {"forward bf16 d16 b3 nq4 nk30 hq2 pages=4", NULL, false},
    {"forward fp16 d16 nq40 nk40 hq2 ragged b2", NULL, false},
    {"forward bf16 d16 nq20 nk24 hq2", "documents", false},
    {"backward fp16 d16 nq20 nk24 hq2 mask=16x16@0.5", NULL, false},
    {"backward bf16 d16 nq20 nk24 hq2 sinks deterministic", NULL, false},
    {"backward bf16 d16 nq20 nk24 hq2", "alibi", false},
    {"backward bf16 d16 nq20 nk24 hq2", NULL, true},
};

enum { CASES = sizeof cases / sizeof *cases };

static struct fake_lab lab;
static struct ft_problem_options options;

static void set_up(void) {
  fault_calls_begin();
  use_fake_nvrtc();
  lab = fake_lab_open();
}

static void choose(int which) {
  options = problem_options(cases[which].request, FT_LAYOUT_BHSD);
  if (cases[which].score)
    ck_assert_status(
        fatune_score_add(&options.request.score, lab.session, cases[which].score, NULL), FT_OK);
  options.want_dlse = options.request.pass == FT_BACKWARD;
  options.keep_host = !cases[which].forward_by_kernel;
}

/* The fake GPU computes nothing. Where all is 0 the worst place is that of the reference's largest
 * number over what it may be off by, so its text tells whether the reference is the same. */
static int write_zeros(void *payload, const fatune_arguments *arguments) {
  struct ft_problem *const problem = payload;
  (void)arguments;
  for (int buffer = 0; buffer < FT_BUFFERS; buffer++) {
    const bool output = buffer == FT_O || buffer == FT_LSE;
    const bool gradient = buffer >= FT_DQ && buffer <= FT_DV;
    if (problem->data[buffer] == 0) continue;
    if (problem->options.request.pass == FT_FORWARD ? output : gradient)
      memset((void *)(uintptr_t)problem->data[buffer], 0, problem->bytes[buffer]);
  }
  return FT_OK;
}

static int use(struct ft_comparison *comparison) {
  struct ft_text text = FT_TEXT_INIT;
  struct ft_problem *problem = NULL;
  int status = ft_problem_make(&problem, lab.session, &options);
  if (status == FT_OK) status = ft_problem_reserve(problem, 5000);
  if (status == FT_OK && !options.keep_host) status = ft_problem_poison(problem, NULL);
  if (status == FT_OK && options.keep_host)
    status = ft_problem_check(problem, &(struct ft_problem_run){write_zeros, problem, NULL, false},
                              10, 1, comparison);
  if (status == FT_OK && options.keep_host)
    status = ft_problem_explain(problem, write_zeros, problem, &text);
  ft_text_free(&text);
  ft_problem_free(problem);
  return status;
}

START_TEST(a_failing_driver_leaves_no_problem_behind) {
  struct ft_comparison comparison;
  bool failed = true;
  int calls = 0;
  choose(_i);
  ck_assert_status(use(&comparison), FT_OK); /* kernels that the session keeps */
  for (; failed; calls++) {
    char failure[32];
    snprintf(failure, sizeof failure, "*:%d:700", calls + 1);
    lab.cuda.reset(failure);
    (void)use(&comparison);
    failed = lab.cuda.failed()[0] != '\0';
    ck_assert_msg(lab.cuda.live() == 0, "call %d, %s: %d left", calls, lab.cuda.failed(),
                  lab.cuda.live());
  }
  ck_assert_int_gt(calls, 10);
  fatune_session_close(lab.session);
}
END_TEST

START_TEST(without_memory_there_is_no_problem) {
  struct ft_comparison whole = {.worst = ""}, comparison;
  bool fired = true;
  long n = 1;
  choose(_i);
  ck_assert_status(use(&whole), FT_OK);
  const int live = lab.cuda.live();
  for (; fired; n++) {
    fault_calls_arm(FAULT_MEMORY, n, false);
    const int status = use(&comparison);
    fired = fault_calls_disarm() >= n;
    ck_assert_msg(status == FT_OK || (fired && status == FT_E_MEMORY), "call %ld: %d %s", n, status,
                  ft_detail());
    ck_assert_msg(lab.cuda.live() == live, "call %ld: %d left", n, lab.cuda.live());
    /* Where the work was done without that memory, it is the same work. */
    if (status == FT_OK && options.keep_host) ck_assert_str_eq(comparison.worst, whole.worst);
  }
  ck_assert_int_gt(n, 10);
  fake_lab_close(&lab);
}
END_TEST

/* ---- measuring ---- */

static int launch(void *payload, cu_stream stream) {
  (void)stream;
  ++*(int *)payload;
  return FT_OK;
}

START_TEST(a_failing_driver_measures_nothing) {
  int launches = 0;
  const struct ft_runnable runnables[2] = {{launch, &launches}, {launch, &launches}};
  const struct ft_measure_policy policy = {.warmup_us = 300, .sample_us = 200, .samples = 3};
  struct ft_timing timings[2];
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  setenv("FATUNE_FAKE_MS", "0.1", 1);
  bool failed = true;
  for (int n = 1; failed; n++) {
    char failure[32];
    snprintf(failure, sizeof failure, "*:%d:700", n);
    lab.cuda.reset(failure);
    const int status =
        ft_measure_interleaved(timings, lab.session, NULL, runnables, 1 + n % 2, &policy, NULL);
    const bool in_use = strstr(lab.cuda.failed(), "Destroy") == NULL;
    failed = lab.cuda.failed()[0] != '\0';
    ck_assert_msg((status != FT_OK) == (failed && in_use), "call %d, %s: %d", n, lab.cuda.failed(),
                  status);
    ck_assert_int_eq(lab.cuda.live(), 0);
  }
  unsetenv("FATUNE_FAKE_MS");
  ft_session_leave(lab.session);
  fatune_session_close(lab.session);
}
END_TEST

Suite *make_problem_failures_suite(void) {
  Suite *const suite = suite_create("problem_failures");
  TCase *const tests = tcase_create("failures");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_loop_test(tests, a_failing_driver_leaves_no_problem_behind, 0, CASES);
  tcase_add_loop_test(tests, without_memory_there_is_no_problem, 0, CASES);
  tcase_add_test(tests, a_failing_driver_measures_nothing);
  suite_add_tcase(suite, tests);
  return suite;
}
