/* gpu_runs.c: the runs of a matrix on the GPU.
 * in -> out: cases with their configs -> verdicts, counted; what is wrong and the worst are told.
 */
#include "tests/gpu/gpu_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_scene.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_verify.h"

enum { ROWS = 2048, MESSAGES_MOST = 20 };

static void tell_wrong(struct gpu_findings *findings, const struct gpu_case *one, int config,
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

static void judge(struct gpu_findings *findings, const struct gpu_case *one, int config,
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

bool gpu_run_config(struct gpu_findings *findings, const struct gpu_case *one, int config,
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
    return false;
  }
  const struct ft_problem_run run = {gpu_run_and_wait, plan, NULL, false};
  gpu_assert_ok(ft_problem_fit(problem, plan));
  const int status = ft_problem_check(problem, &run, ROWS, gpu_lab()->threads, &comparison);
  if (status != FATUNE_OK) tell_wrong(findings, one, config, fatune_detail());
  gpu_assert_ok(status);
  judge(findings, one, config, &comparison);
  fatune_plan_free(plan);
  return true;
}

void gpu_report(const char *name, const struct gpu_findings *findings, const struct gpu_case *cases,
                int count, double compile_seconds, double seconds) {
  const struct gpu_case *const worst = &cases[findings->worst_case - cases[0].index];
  char *const request = gpu_request_text(&worst->options.request);
  char *const config = gpu_config_text(&worst->configs[findings->worst_config]);
  printf("%s: %d requests, %d runs, %d wrong; compiled in %.1f s, run and verified in %.1f s\n"
         "%s: worst error is %.3f of the allowed: case %d, %s\n  %s\n  %s\n",
         name, count, findings->runs, findings->wrong, compile_seconds, seconds, name,
         findings->worst, worst->index, findings->worst_what, request, config);
  fflush(stdout);
  free(request);
  free(config);
}

int gpu_chosen_cases(int *first) {
  const char *const given = getenv("FATUNE_TEST_CASE");
  char *end = NULL;
  *first = given ? (int)strtol(given, &end, 10) : 0;
  int last = given ? *first : GPU_CASES - 1;
  if (given && strncmp(end, "..", 2) == 0) last = (int)strtol(end + 2, NULL, 10);
  ck_assert_msg(*first >= 0 && *first <= last && last < GPU_CASES,
                "FATUNE_TEST_CASE is %s; allowed: 0 .. %d", given, GPU_CASES - 1);
  return last - *first + 1;
}

void gpu_check_requests(const char *name, int most, int configs,
                        void (*make)(struct gpu_case *one, int index)) {
  struct gpu_findings findings = {0};
  int first;
  int count = gpu_chosen_cases(&first);
  if (count > most) count = most;
  struct gpu_case *const cases = calloc((size_t)count, sizeof *cases);
  ck_assert_ptr_nonnull(cases);
  for (int i = 0; i < count; i++) make(&cases[i], first + i);
  findings.worst_case = first;

  const double begin = gpu_seconds();
  const int uncompiled = gpu_cases_compile(cases, count);
  const double compiled = gpu_seconds();
  for (int i = 0; i < count; i++) {
    struct ft_problem *problem = NULL;
    gpu_assert_ok(ft_problem_make(&problem, gpu_lab()->session, &cases[i].options));
    for (int config = 0; config < configs; config++)
      gpu_run_config(&findings, &cases[i], config, problem);
    ft_problem_free(problem);
  }
  gpu_report(name, &findings, cases, count, compiled - begin, gpu_seconds() - compiled);
  free(cases);
  ck_assert_int_eq(uncompiled, 0);
  ck_assert_int_eq(findings.wrong, 0);
  ck_assert_int_eq(findings.runs, count * configs);
}

void gpu_check_large(const char *request, const char *config, uint64_t seed) {
  enum { CHECKED_ROWS = 64 };
  struct gpu_scene scene = gpu_scene_open(request, config, seed);
  const struct ft_problem_run run = {gpu_run_and_wait, scene.plan, NULL, false};
  struct ft_comparison comparison;
  gpu_assert_ok(
      ft_problem_check(scene.problem, &run, CHECKED_ROWS, gpu_lab()->threads, &comparison));
  ck_assert_msg(comparison.error_ratio <= 1, "%s: %s", request, comparison.worst);
  gpu_scene_close(&scene);
}
