/* test_gpu_matrix.c: the cross-product of features against float64 on the CPU.
 * in -> out: 341 requests, each with its default and a random legal config -> fences, poison and
 * every row checked by ft_problem_verify; the worst error over the allowed one is told.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "generator/status.h"
#include "tests/gpu/gpu_cases.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/matrix_cases.h"
#include "tuner/measure.h"

enum { ROWS = 2048, MESSAGES_MOST = 20 };

/* What a run over the cases has found. */
struct findings {
  int runs, wrong;
  double worst;
  int worst_case, worst_config;
  char worst_what[160];
};

static void tell_wrong(struct findings *findings, const struct gpu_case *one, int config,
                       const char *what) {
  if (++findings->wrong > MESSAGES_MOST) return;
  char *const request = gpu_request_text(&one->options.request);
  char *const text = gpu_config_text(&one->configs[config]);
  printf("WRONG case %d: %s\n  config %s\n  layout %d, mask %s, dropout %g, scale %g\n  %s\n",
         one->index, request, text, (int)one->options.layout,
         one->options.broadcast_mask ? "broadcast" : "full", one->options.dropout,
         one->options.scale, what);
  fflush(stdout);
  free(request);
  free(text);
}

static void judge(struct findings *findings, const struct gpu_case *one, int config,
                  const struct ft_comparison *comparison) {
  findings->runs++;
  /* Written so that NaN is wrong. */
  if (!(comparison->error_ratio <= 1)) tell_wrong(findings, one, config, comparison->worst);
  if (comparison->error_ratio <= findings->worst) return;
  findings->worst = comparison->error_ratio;
  findings->worst_case = one->index;
  findings->worst_config = config;
  snprintf(findings->worst_what, sizeof findings->worst_what, "%s", comparison->worst);
}

/* Only what makes all later runs meaningless fails at once. */
static void run_config(struct findings *findings, const struct gpu_case *one, int config,
                       struct ft_problem *problem) {
  fatune_session *const session = gpu_lab()->session;
  const fatune_request request = gpu_public_request(&one->options.request);
  char *const text = gpu_config_text(&one->configs[config]);
  fatune_plan *plan = NULL;
  struct ft_comparison comparison;
  const int made = fatune_plan_make_with(&plan, session, &request, text);
  free(text);
  if (made != FATUNE_OK) {
    tell_wrong(findings, one, config, fatune_detail());
    return;
  }
  gpu_assert_ok(ft_problem_poison(problem, NULL));
  int status = fatune_plan_run(plan, ft_problem_arguments(problem), NULL);
  if (status == FATUNE_OK) status = ft_measure_wait(session, NULL);
  if (status != FATUNE_OK) tell_wrong(findings, one, config, fatune_detail());
  gpu_assert_ok(status);
  gpu_assert_ok(ft_problem_verify(problem, ROWS, gpu_lab()->threads, &comparison));
  judge(findings, one, config, &comparison);
  fatune_plan_free(plan);
}

static void run_case(struct findings *findings, const struct gpu_case *one) {
  struct ft_problem *problem = NULL;
  gpu_assert_ok(ft_problem_make(&problem, gpu_lab()->session, &one->options));
  for (int config = 0; config < GPU_CONFIGS; config++) run_config(findings, one, config, problem);
  ft_problem_free(problem);
}

static void report(const struct findings *findings, const struct gpu_case *cases, int count,
                   double compile_seconds, double seconds) {
  const struct gpu_case *const worst = &cases[findings->worst_case - cases[0].index];
  char *const request = gpu_request_text(&worst->options.request);
  char *const config = gpu_config_text(&worst->configs[findings->worst_config]);
  printf("matrix: %d requests, %d runs, %d wrong; compiled in %.1f s, run and verified in %.1f s\n"
         "matrix: worst error is %.3f of the allowed: case %d, %s\n  %s\n  %s\n",
         count, findings->runs, findings->wrong, compile_seconds, seconds, findings->worst,
         worst->index, findings->worst_what, request, config);
  fflush(stdout);
  free(request);
  free(config);
}

/* The one case of FATUNE_TEST_CASE, else all. */
static int chosen_cases(int *first) {
  const char *const given = getenv("FATUNE_TEST_CASE");
  *first = given ? (int)strtol(given, NULL, 10) : 0;
  ck_assert_msg(*first >= 0 && *first < GPU_CASES, "FATUNE_TEST_CASE is %s; allowed: 0 .. %d",
                given, GPU_CASES - 1);
  return given ? 1 : GPU_CASES;
}

START_TEST(every_request_is_right) {
  struct findings findings = {0};
  int first;
  const int count = chosen_cases(&first);
  struct gpu_case *const cases = calloc((size_t)count, sizeof *cases);
  ck_assert_ptr_nonnull(cases);
  for (int i = 0; i < count; i++) gpu_case_make(&cases[i], first + i);
  findings.worst_case = first;

  const double begin = gpu_seconds();
  const int uncompiled = gpu_cases_compile(cases, count);
  const double compiled = gpu_seconds();
  for (int i = 0; i < count; i++) run_case(&findings, &cases[i]);
  report(&findings, cases, count, compiled - begin, gpu_seconds() - compiled);
  free(cases);
  ck_assert_int_eq(uncompiled, 0);
  ck_assert_int_eq(findings.wrong, 0);
  ck_assert_int_eq(findings.runs, count * GPU_CONFIGS);
}
END_TEST

/* ---- what the matrix covers ---- */

START_TEST(the_matrix_covers_what_it_says) {
  static const struct matrix_least least = {
      .dim = 11, .combination = 14, .layout = 80, .feature = 10};
  struct matrix_tally tally = {0};
  for (int i = 0; i < GPU_CASES; i++) {
    struct gpu_case one;
    gpu_case_make(&one, i);
    matrix_count(&tally, &one.options);
  }
  matrix_assert_covers(&tally, &least);
}
END_TEST

Suite *make_gpu_matrix_suite(void) {
  Suite *const suite = suite_create("gpu_matrix");
  TCase *const tests = tcase_create("matrix");
  tcase_add_test(tests, the_matrix_covers_what_it_says);
  tcase_add_test(tests, every_request_is_right);
  suite_add_tcase(suite, tests);
  return suite;
}
