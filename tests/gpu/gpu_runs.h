/* gpu_runs.h: the runs of a matrix on the GPU.
 * in -> out: cases with their configs -> verdicts, counted; what is wrong and the worst are told.
 */
#ifndef TESTS_GPU_GPU_RUNS_H
#define TESTS_GPU_GPU_RUNS_H

#include "tests/gpu/gpu_cases.h"
#include "tuner/verify/problem.h"

/* What a run over the cases has found. */
struct gpu_findings {
  int runs, wrong;
  double worst;
  int worst_case, worst_config;
  char worst_what[160];
};

/* Whether it ran. Only what makes all later runs meaningless fails the test at once. */
bool gpu_run_config(struct gpu_findings *findings, const struct gpu_case *one, int config,
                    struct ft_problem *problem);
void gpu_report(const char *name, const struct gpu_findings *findings, const struct gpu_case *cases,
                int count, double compile_seconds, double seconds);

/* Makes requests (at most so many), runs each with its first `configs` configs and asserts that
 * every run is right. */
void gpu_check_requests(const char *name, int most, int configs,
                        void (*make)(struct gpu_case *one, int index));

/* Runs a long request with this config, or with NULL its default, and asserts that 64 rows are
 * right.
 */
void gpu_check_large(const char *request, const char *config, uint64_t seed);

/* How many cases to run, from *first on: the one of FATUNE_TEST_CASE, those of "3..8", or all. */
int gpu_chosen_cases(int *first);

#endif
