/* gpu_cases.h: the requests of the matrix suite, and their kernels compiled by all cores
 * beforehand. in -> out: index -> request, layout, mask, dropout (the same in every run); seed ->
 * inputs and one random legal config; cases -> compiled kernels in the session's store. */
#ifndef TESTS_GPU_GPU_CASES_H
#define TESTS_GPU_GPU_CASES_H

#include "tests/gpu/gpu_lab.h"
#include "tuner/verify/problem_options.h"

/* 11 for each of the 31 head dims; 31 and the 24 combinations of causal, dropout, mask and dtype
 * have no common divisor, so every dim meets them in another order. */
enum { GPU_CASES = 341, GPU_CONFIGS = 2 };

struct gpu_case {
  int index;
  struct ft_problem_options options;
  struct ft_config configs[GPU_CONFIGS]; /* the default, a random legal one */
  int config_count;                      /* how many of them are run */
};

/* All of a case but its configs. Needs the lab's session where the case has a random score, whose
 * options are `coarse`. */
void gpu_case_options(struct ft_problem_options *options, int index, uint64_t seed);
void gpu_case_options_backward(struct ft_problem_options *options, int index);
/* Fails the test on any error. */
void gpu_case_make(struct gpu_case *one, int index);
/* The same of e4m3, without what that excludes. One random config in two is of mma_forward, where
 * it serves the request. */
void gpu_case_make_e4m3(struct gpu_case *one, int index);
/* A request with a score function, run with one config. One request in three is a backward. The
 * function is random, but for one case in 16, if that is a forward. */
void gpu_case_make_scored(struct gpu_case *one, int index);
/* Forward and backward of fp32, one in four of tf32. */
void gpu_case_make_fp32(struct gpu_case *one, int index);
/* The same of the backward. */
void gpu_case_make_backward(struct gpu_case *one, int index);

/* What failed, by case and config; 0 when all compiled. Messages go to stderr. */
int gpu_cases_compile(const struct gpu_case *cases, int count);

#endif
